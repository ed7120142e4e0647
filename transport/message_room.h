// Where the next message of a connection goes: the rest of the batch that is being filled.
//
// Every call adds one message at either end, and Connection::Append() is part of its caller. So
// this step of making a batch is in the seam; all else of batches is in transport/framing/.
//
// A message is a frame: a word, its header, and then its bytes, padded to kFrameAlignment. What the
// header says besides the length is the framing's business.
//
// Threads: the connection's engine. Lifetime: a member of its connection's sender, which opens and
//   closes it; the slot that it is open in outlives that.
// Errors: none; what does not fit is the connection's business.
// Invariants: nothing fits while the room is closed, for a frame has 8 bytes at least. room() is a
//   multiple of kFrameAlignment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/check.h"

namespace weft {

inline constexpr size_t kFrameHeaderBytes = 8;
// Frames and payloads start at multiples of this: messages can be read in place as 64-bit words.
inline constexpr size_t kFrameAlignment = 8;

// The room that a payload takes in a batch, header and padding included.
// REQUIRES: payload_bytes < 2^63.
constexpr size_t FrameBytes(size_t payload_bytes) {
  return (payload_bytes + kFrameHeaderBytes + (kFrameAlignment - 1)) & ~(kFrameAlignment - 1);
}

// Where a message that is already queued is to be written, and its number (Connection::Commit()).
struct MessageSpace {
  std::byte* data = nullptr;  // null: refused
  uint64_t number = 0;
};

class MessageRoom {
 public:
  // `message_header`: of messages, with the length in its lower 32 bits, 0 here.
  explicit MessageRoom(uint64_t message_header) : message_header_(message_header) {}

  // REQUIRES: `first` and `bytes` are multiples of kFrameAlignment.
  void Open(std::byte* first, uint32_t bytes) {
    next_ = first;
    room_ = bytes;
    frames_ = 0;
  }
  void Close() { Open(nullptr, 0); }
  // The frames have moved; the next one goes to `next`. REQUIRES: as Open().
  void MoveTo(std::byte* next, uint32_t bytes) {
    next_ = next;
    room_ = bytes;
  }

  bool Fits(size_t frame_bytes) const { return frame_bytes <= room_; }

  // Completes a frame; returns where its payload goes. The padding is not touched.
  // REQUIRES: Fits(FrameBytes(payload_bytes)).
  std::byte* Append(size_t payload_bytes, uint64_t header) {
    const size_t frame_bytes = FrameBytes(payload_bytes);
    WEFT_DCHECK(Fits(frame_bytes));  // Ours: callers have made the room
    std::byte* const frame = next_;
    StoreLe64(frame, header | static_cast<uint32_t>(payload_bytes));
    next_ += frame_bytes;
    room_ -= static_cast<uint32_t>(frame_bytes);
    ++frames_;
    return frame + kFrameHeaderBytes;
  }

  // The same for a message that will be as long as that, padding included. It is committed.
  MessageSpace AppendMessage(size_t bytes) {
    ClearPaddingOfNext(FrameBytes(bytes));
    return {Append(bytes, message_header_), committed_++};
  }

  // The padding of the next frame, in one store, for a payload that will be just as long. (Without
  // payload this hits the header, which comes after.)
  void ClearPaddingOfNext(size_t frame_bytes) {
    StoreLe64(next_ + frame_bytes - kFrameAlignment, 0);
  }

  // A message that went another way, or whose frame is there already. Returns its number.
  uint64_t Commit() { return committed_++; }

  std::byte* next() const { return next_; }
  uint32_t room() const { return room_; }
  uint16_t frames() const { return frames_; }
  // Messages, of all batches.
  uint64_t committed() const { return committed_; }
  uint64_t message_header() const { return message_header_; }

 private:
  std::byte* next_ = nullptr;
  uint32_t room_ = 0;  // bytes
  uint16_t frames_ = 0;
  uint64_t committed_ = 0;
  const uint64_t message_header_;
};

}  // namespace weft
