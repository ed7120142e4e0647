// The frames of sessions between peers, beside those of calls (frame.h) and streams
// (stream_frame.h): on such a connection both sides call and both serve.
//
//   begin   {u32 0, u32 0, u16 0, u16 kind, u32 0}   body: the protobuf message ClientHello
//   end     the same                                 zeros, which mean nothing
//   ended   the same                                 the same
//
// begin: its sender calls from now on. end: its sender makes no call any more, and waits for none.
// ended: the answer to it; nothing of those calls comes behind it. Both are longer than what the
// connection takes in one frame, so that they overtake nothing. docs/wire_format.md says what each
// side must check.
//
// Threads: values. Errors: Decode* return false for a frame that no peer of this protocol sends.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/stream_frame.h"

namespace weft {

// The names of peers: told in each hello, and in errors and logs.
inline constexpr size_t kMaxPeerIdBytes = 128;

// OK: 1 to kMaxPeerIdBytes printable ASCII characters, without blanks. Else INVALID_ARGUMENT, which
// says so of `what`.
absl::Status CheckPeerId(std::string_view what, std::string_view id);

enum class PeerFrameKind : uint16_t { kBegin = 13, kEnd = 14, kEnded = 15 };

// A ClientHello without what is a peer's has some 60 bytes; a begin travels in one eager frame.
inline constexpr size_t kMaxBeginBytes = 1024;

// Which half of a connection between peers a frame is for.
enum class PeerHalf : uint8_t {
  kServing = 1,  // requests, and what belongs to streams that the sender has opened
  kCalling = 2,  // replies, and what belongs to streams that the receiver has opened
  kSession = 3,  // both: begin, end, ended
  kNone = 4,     // no such kind
};

inline PeerHalf PeerHalfOf(uint16_t kind) {
  switch (kind & 0xFF) {
    case static_cast<uint16_t>(CallFrameKind::kRequest):
    case static_cast<uint16_t>(CallFrameKind::kCancel):
    case static_cast<uint16_t>(CallFrameKind::kOneWay):
    case static_cast<uint16_t>(StreamFrameKind::kOpen):
    case static_cast<uint16_t>(StreamFrameKind::kCancel):
      return PeerHalf::kServing;
    case static_cast<uint16_t>(CallFrameKind::kReply):
    case static_cast<uint16_t>(CallFrameKind::kReleased):
    case static_cast<uint16_t>(CallFrameKind::kGoaway):
    case static_cast<uint16_t>(StreamFrameKind::kEnd):
      return PeerHalf::kCalling;
    case static_cast<uint16_t>(StreamFrameKind::kData):
    case static_cast<uint16_t>(StreamFrameKind::kCredit):
      return (kind & kToOpenerBit) != 0 ? PeerHalf::kCalling : PeerHalf::kServing;
    case static_cast<uint16_t>(PeerFrameKind::kBegin):
    case static_cast<uint16_t>(PeerFrameKind::kEnd):
    case static_cast<uint16_t>(PeerFrameKind::kEnded):
      return PeerHalf::kSession;
    default:
      return PeerHalf::kNone;
  }
}

// The header only: the body follows it. REQUIRES: kCallHeaderBytes writable at `to`.
inline void EncodePeerFrame(PeerFrameKind kind, std::byte* to) {
  EncodeCallHeader({}, 0, static_cast<uint16_t>(kind), 0, to);
}

// False: it is of another kind, or fields that must be 0 are not.
[[nodiscard]] inline bool DecodePeerFrame(PeerFrameKind kind, ByteSpan frame) {
  return CallFrameKindOf(frame) == static_cast<uint16_t>(kind) && CallIdOf(frame) == CallId() &&
         LoadLe16(frame.data() + 8) == 0 && LoadLe32(frame.data() + 12) == 0;
}

// False: the same, or the hello is longer than kMaxBeginBytes.
[[nodiscard]] inline bool DecodeBegin(ByteSpan frame, ByteSpan* hello) {
  if (!DecodePeerFrame(PeerFrameKind::kBegin, frame)) return false;
  *hello = frame.subspan(kCallHeaderBytes);
  return hello->size() <= kMaxBeginBytes;
}

}  // namespace weft
