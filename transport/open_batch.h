// The batch that a connection is filling: where the next frame goes, and how much room there is.
//
// Every call adds one message to a batch, at either end. So this one step of transport/framing/ is
// up here, where Connection::Append() can be part of its caller; the rest of a batch is in
// transport/framing/batch.h, and so is what stands in a frame's header.
//
// Threads: the connection's engine. Errors: none; what does not fit is the connection's business.
// Invariants: room() is 0 while no batch is open: nothing fits then, for a frame has 8 bytes at
//   least. room() is a multiple of kFrameAlignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/check.h"

namespace weft {

inline constexpr size_t kFrameHeaderBytes = 8;
// Frames and payloads start at multiples of this: messages can be read in place as 64-bit words.
inline constexpr size_t kFrameAlignment = 8;

// The numbers stand on the wire: never reuse one.
enum class FrameKind : uint8_t {
  kMessage = 1,     // payload: the message
  kLargeOffer = 2,  // payload: LargeOffer
  kLargeDone = 3,   // payload: LargeDone
  kRequest = 4,     // payload: Request
  kReply = 5,       // payload: Reply
};

// The room that a payload takes in a batch, header and padding included.
// REQUIRES: payload_bytes < 2^63.
constexpr size_t FrameBytes(size_t payload_bytes) {
  return (payload_bytes + kFrameHeaderBytes + (kFrameAlignment - 1)) & ~(kFrameAlignment - 1);
}

// Flags and reserved fields are 0. REQUIRES: kFrameHeaderBytes of room at `to`.
inline void EncodeFrameHeader(std::byte* to, uint32_t length, FrameKind kind) {
  StoreLe64(to, uint64_t{static_cast<uint8_t>(kind)} << 32 | length);
}

class OpenBatch {
 public:
  // REQUIRES: `first_frame` and `room` are multiples of kFrameAlignment.
  void Open(std::byte* first_frame, uint32_t room) {
    next_ = first_frame;
    room_ = room;
    frames_ = 0;
  }
  void Close() { *this = {}; }
  // The frames have moved; the next one goes to `next`. REQUIRES: as Open().
  void MoveTo(std::byte* next, uint32_t room) {
    next_ = next;
    room_ = room;
  }

  bool Fits(size_t frame_bytes) const { return frame_bytes <= room_; }

  // Completes a frame; returns where its payload goes. The padding is not touched.
  // REQUIRES: Fits(FrameBytes(payload_bytes)).
  std::byte* Append(size_t payload_bytes, FrameKind kind) {
    const size_t frame_bytes = FrameBytes(payload_bytes);
    WEFT_DCHECK(Fits(frame_bytes));
    std::byte* const frame = next_;
    EncodeFrameHeader(frame, static_cast<uint32_t>(payload_bytes), kind);
    next_ += frame_bytes;
    room_ -= static_cast<uint32_t>(frame_bytes);
    ++frames_;
    return frame + kFrameHeaderBytes;
  }

  // The padding of the next frame, in one store, for a payload that will be just as long. (Without
  // payload this hits the header, which comes after.)
  void ClearPaddingOfNext(size_t frame_bytes) {
    StoreLe64(next_ + frame_bytes - kFrameAlignment, 0);
  }

  std::byte* next() const { return next_; }
  uint32_t room() const { return room_; }
  uint16_t frames() const { return frames_; }

 private:
  std::byte* next_ = nullptr;
  uint32_t room_ = 0;  // bytes
  uint16_t frames_ = 0;
};

}  // namespace weft
