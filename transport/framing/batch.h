// The wire format of one fabric message, a batch: a header and some frames, little-endian.
//
//   offset  bytes  batch header
//        0      4  connection   index in the receiver's connection table
//        4      4  token        the receiver's random number for that index
//        8      2  credits      returned to the receiver of this batch
//       10      2  frames       that follow; 0 in a batch that only returns credits
//       12      4  sequence     0, 1, 2, ... in each direction, modulo 2^32
//
//   offset  bytes  frame header, at a multiple of 8
//        0      4  length       of the payload, without its padding
//        4      1  kind         FrameKind
//        5      1  flags        0
//        6      2  reserved     0
//        8   length             payload, padded with any bytes to a multiple of 8
//
// On a sealed connection the frames are ciphertext, and the tag follows them, 16 bytes (seal.h). On
// one that is not sealed, over a path whose links share receives, the receiver's proof stands in
// the tag's place: 16 random bytes that it has told its peer in the handshake.
//
// The frames fill the rest of the batch exactly. Payloads of the kinds, and the rules for credits
// and large messages, stand in docs/wire_format.md.
//
// Encoding trusts its caller, who has made the room. Decoding trusts nothing: BatchReader yields
// frames that lie inside the batch, and says whether the whole of it was well formed.
//
// Threads: plain functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/bytes.h"
#include "transport/message_room.h"

namespace weft {

inline constexpr size_t kBatchHeaderBytes = 16;

// The numbers stand on the wire: never reuse one.
enum class FrameKind : uint8_t {
  kMessage = 1,     // payload: the message
  kLargeOffer = 2,  // payload: LargeOffer
  kLargeDone = 3,   // payload: LargeDone
  kRequest = 4,     // payload: Request
  kReply = 5,       // payload: Reply
  // On sealed connections only (sealed_transfers.h):
  kSealedRead = 6,
  kSealedWrite = 7,
  kSealedData = 8,
  kSealedEnd = 9,
};

// The header of a frame without a payload: flags and reserved fields are 0.
constexpr uint64_t FrameHeader(FrameKind kind) {
  return uint64_t{static_cast<uint8_t>(kind)} << 32;
}

struct BatchHeader {
  uint32_t connection = 0;
  uint32_t token = 0;
  uint16_t credits = 0;
  uint16_t frames = 0;
  uint32_t sequence = 0;
};

// A message waits in the sender's memory to be read. 32 bytes on the wire, in this order; on a
// sealed connection the tag of the message, which is ciphertext, follows.
struct LargeOffer {
  static constexpr size_t kBytes = 32;
  static constexpr size_t kSealedBytes = 48;
  uint64_t id = 0;  // 0, 1, 2, ... in each direction
  uint64_t key = 0;
  uint64_t offset = 0;
  uint64_t length = 0;  // bytes, 1..kMaxMessageBytes
};

// It has been read. 16 bytes on the wire: id, status, and 4 bytes that are 0.
struct LargeDone {
  static constexpr size_t kBytes = 16;
  uint64_t id = 0;
  uint32_t status = 0;  // 0: delivered; other values end the connection
};

// The numbers stand on the wire: never reuse one.
enum class RequestKind : uint32_t {
  kProbe = 1,        // is only answered; the fields below are 0
  kFetchAdd = 2,     // adds the operand
  kCompareSwap = 3,  // where `expected` is, puts the operand
};

// Asks the peer's framing. 48 bytes on the wire, in this order, 4 bytes that are 0 after the kind.
struct Request {
  static constexpr size_t kBytes = 48;
  uint64_t id = 0;  // 0, 1, 2, ... in each direction
  RequestKind kind = RequestKind::kProbe;
  uint64_t key = 0;
  uint64_t offset = 0;
  uint64_t operand = 0;
  uint64_t expected = 0;
};

enum class ReplyStatus : uint32_t { kDone = 0, kNotGranted = 1 };

// 24 bytes on the wire, in this order, and 4 bytes that are 0.
struct Reply {
  static constexpr size_t kBytes = 24;
  uint64_t id = 0;
  uint64_t before = 0;
  ReplyStatus status = ReplyStatus::kDone;
};

// The largest payload of a batch of `batch_bytes`.
// REQUIRES: batch_bytes >= kBatchHeaderBytes + kFrameHeaderBytes.
constexpr size_t MaxPayloadBytes(size_t batch_bytes) {
  return ((batch_bytes - kBatchHeaderBytes) & ~(kFrameAlignment - 1)) - kFrameHeaderBytes;
}

// Padding travels as well: what stood in the slot before is nobody's business.
inline void ClearPadding(std::byte* payload, size_t bytes) {
  std::memset(payload + bytes, 0, FrameBytes(bytes) - kFrameHeaderBytes - bytes);
}

// REQUIRES: kBatchHeaderBytes (kBytes) of room at `to`.
inline void EncodeBatchHeader(std::byte* to, const BatchHeader& header) {
  StoreLe32(to, header.connection);
  StoreLe32(to + 4, header.token);
  StoreLe16(to + 8, header.credits);
  StoreLe16(to + 10, header.frames);
  StoreLe32(to + 12, header.sequence);
}

// REQUIRES: kFrameHeaderBytes of room at `to`.
inline void EncodeFrameHeader(std::byte* to, uint32_t length, FrameKind kind) {
  StoreLe64(to, FrameHeader(kind) | length);
}

inline void EncodeLargeOffer(std::byte* to, const LargeOffer& offer) {
  StoreLe64(to, offer.id);
  StoreLe64(to + 8, offer.key);
  StoreLe64(to + 16, offer.offset);
  StoreLe64(to + 24, offer.length);
}

inline void EncodeLargeDone(std::byte* to, const LargeDone& done) {
  StoreLe64(to, done.id);
  StoreLe32(to + 8, done.status);
  StoreLe32(to + 12, 0);
}

inline void EncodeRequest(std::byte* to, const Request& request) {
  StoreLe64(to, request.id);
  StoreLe64(to + 8, static_cast<uint32_t>(request.kind));
  StoreLe64(to + 16, request.key);
  StoreLe64(to + 24, request.offset);
  StoreLe64(to + 32, request.operand);
  StoreLe64(to + 40, request.expected);
}

inline void EncodeReply(std::byte* to, const Reply& reply) {
  StoreLe64(to, reply.id);
  StoreLe64(to + 8, reply.before);
  StoreLe64(to + 16, static_cast<uint32_t>(reply.status));
}

// False: too short.
[[nodiscard]] inline bool DecodeBatchHeader(ByteSpan batch, BatchHeader* header) {
  if (batch.size() < kBatchHeaderBytes) return false;
  const std::byte* from = batch.data();
  header->connection = LoadLe32(from);
  header->token = LoadLe32(from + 4);
  header->credits = LoadLe16(from + 8);
  header->frames = LoadLe16(from + 10);
  header->sequence = LoadLe32(from + 12);
  return true;
}

// False: not exactly its size. Whether the values make sense is for the caller to check.
[[nodiscard]] inline bool DecodeLargeOffer(ByteSpan payload, LargeOffer* offer) {
  if (payload.size() != LargeOffer::kBytes) return false;
  offer->id = LoadLe64(payload.data());
  offer->key = LoadLe64(payload.data() + 8);
  offer->offset = LoadLe64(payload.data() + 16);
  offer->length = LoadLe64(payload.data() + 24);
  return true;
}

[[nodiscard]] inline bool DecodeLargeDone(ByteSpan payload, LargeDone* done) {
  if (payload.size() != LargeDone::kBytes) return false;
  done->id = LoadLe64(payload.data());
  done->status = LoadLe32(payload.data() + 8);
  return LoadLe32(payload.data() + 12) == 0;
}

[[nodiscard]] inline bool DecodeRequest(ByteSpan payload, Request* request) {
  if (payload.size() != Request::kBytes) return false;
  request->id = LoadLe64(payload.data());
  request->kind = static_cast<RequestKind>(LoadLe32(payload.data() + 8));
  request->key = LoadLe64(payload.data() + 16);
  request->offset = LoadLe64(payload.data() + 24);
  request->operand = LoadLe64(payload.data() + 32);
  request->expected = LoadLe64(payload.data() + 40);
  return LoadLe32(payload.data() + 12) == 0;
}

[[nodiscard]] inline bool DecodeReply(ByteSpan payload, Reply* reply) {
  if (payload.size() != Reply::kBytes) return false;
  reply->id = LoadLe64(payload.data());
  reply->before = LoadLe64(payload.data() + 8);
  reply->status = static_cast<ReplyStatus>(LoadLe32(payload.data() + 16));
  return LoadLe32(payload.data() + 20) == 0;
}

struct Frame {
  FrameKind kind = FrameKind::kMessage;  // may be a number that has no name
  ByteSpan payload;
};

// Walks the frames of a batch that DecodeBatchHeader() has accepted.
//
//   BatchReader reader(batch, header.frames);
//   Frame frame;
//   while (reader.Next(&frame)) ...
//   if (!reader.complete()) ...  // malformed
class BatchReader {
 public:
  BatchReader(ByteSpan batch, uint16_t frames)
      : at_(batch.data() + kBatchHeaderBytes),
        remaining_(batch.size() - kBatchHeaderBytes),
        frames_(frames) {
    // Frames are of whole words: what is left is never too short for a header.
    if (remaining_ % kFrameAlignment == 0) [[likely]]
      return;
    remaining_ = 0;
    frames_ = 1;  // one that never comes
  }

  bool at_end() const { return remaining_ == 0; }

  // The next frame, if it is a message; it mostly is. Else false: Next() knows what it is.
  [[nodiscard]] bool NextMessage(ByteSpan* payload) {
    if (remaining_ == 0) return false;
    const uint32_t length = LoadLe32(at_);
    const size_t bytes = FrameBytes(length);
    constexpr auto kMessage = static_cast<uint32_t>(FrameKind::kMessage);
    if (LoadLe32(at_ + 4) != kMessage || bytes > remaining_) return false;
    *payload = ByteSpan(at_ + kFrameHeaderBytes, length);
    Step(bytes);
    return true;
  }

  // False: no more frames, or the next one is malformed; complete() tells which. (More frames than
  // were announced come out too, before complete() says so.)
  [[nodiscard]] bool Next(Frame* frame) {
    if (remaining_ == 0) return false;
    const uint32_t length = LoadLe32(at_);
    const uint32_t kind = LoadLe32(at_ + 4);
    const size_t bytes = FrameBytes(length);
    if (bytes > remaining_ || kind > 0xff) return false;  // flags and reserved must be 0
    *frame = {static_cast<FrameKind>(kind), ByteSpan(at_ + kFrameHeaderBytes, length)};
    Step(bytes);
    return true;
  }

  // Every frame that the header announced was there, and nothing else.
  bool complete() const { return frames_ == 0 && remaining_ == 0; }

 private:
  void Step(size_t bytes) {
    at_ += bytes;
    remaining_ -= bytes;
    --frames_;
  }

  const std::byte* at_;
  size_t remaining_;
  uint16_t frames_;  // left; a batch of 65536 frames would be longer than any is
};

}  // namespace weft
