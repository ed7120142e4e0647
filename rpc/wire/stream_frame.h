// The frames of streams, beside those of calls (frame.h): each is one transport message, a header
// of 16 bytes, {u32 slot, u32 generation, u16 a, u16 kind, u32 b}, little-endian, and a body.
//
//   open    client  a: method, b: remaining_us           body: windows, extras
//   data    both    a: kLastMessage, kNoMessage          body: the message
//                   b: the message's number from 0; with kNoMessage: how many there were
//   credit  both    a: messages more, b: bytes more      no body
//   end     server  a: status, b: text_bytes             body: extras, {u32 messages, u32 0}, text
//   cancel  client  a: 0, b: 0                           no body
//
// and the release of frame.h, with a bit that says that it is a stream's.
//
// `slot` and `generation` name a stream on its connection; they are apart from those of calls. The
// highest bit of `kind` is set in an open or an end that has extras; bit 14 in an open behind which
// nothing comes until there is credit; bit 8 in data and credit of the server: they go to who has
// opened the stream; bits 8 to 11 are the number of windows of an open, and bits 12 and 13 its
// priority (frame.h). docs/wire_format.md says what each side must check.
//
// Threads: values. Errors: Decode* return false for a frame that no peer of this protocol sends.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "rpc/wire/frame.h"

namespace weft {

enum class StreamFrameKind : uint16_t { kOpen = 5, kData = 6, kCredit = 7, kEnd = 8, kCancel = 9 };

// In the kind of an open: it is larger than what is sent eagerly, so small frames could overtake
// it. The client sends nothing more until it has credit, and has none when the stream begins.
inline constexpr uint16_t kOpenWaitsBit = 0x4000;

// In the kind of data and credit: the receiver has opened the stream. Between peers both sides open
// streams, and the slots of both have the same numbers.
inline constexpr uint16_t kToOpenerBit = 0x0100;

// In the kind of a release: the memory that a stream lends is given back, not a call's.
inline constexpr uint16_t kOfStreamBit = 0x0100;

// In the `a` of data: nothing comes behind it; there is no message in it (only with the former).
inline constexpr uint16_t kLastMessage = 1;
inline constexpr uint16_t kNoMessage = 2;

// {u32 messages, u32 0} of an end.
inline constexpr size_t kEndCountBytes = 8;

// The bound of both sides' stream slots on one connection: 10,000 streams at once, and some. A slot
// that was used costs the server 24 bytes, one in use about 3 KiB and what waits in it.
inline constexpr uint32_t kMaxStreams = 16384;

// What a side is ready to hold of each stream. Messages fit the `a` of one credit; bytes are
// bounded as single messages are.
inline constexpr uint32_t kMaxWindowMessages = 65535;
inline constexpr uint32_t kMaxWindowBytes = static_cast<uint32_t>(kMaxMessageBytes);

struct StreamWindow {
  uint32_t messages = 0;
  uint32_t bytes = 0;

  friend constexpr bool operator==(StreamWindow, StreamWindow) = default;
};

// What one side says in its hello, or what both agree on.
struct StreamLimits {
  uint32_t max_streams = 0;  // 0: there are none
  StreamWindow window;
};

// A hello's fields, as far as they are to be believed.
StreamLimits BoundedStreamLimits(uint32_t max_streams, uint32_t window_messages,
                                 uint32_t window_bytes);

// The same as options: OK, or INVALID_ARGUMENT in words.
absl::Status CheckStreamOptions(std::string_view options, uint32_t max_streams,
                                uint32_t window_messages, uint32_t window_bytes);

// The frame is one of a stream, whatever else is wrong with it.
constexpr bool IsStreamKind(uint16_t kind) {
  const uint16_t low = kind & 0xFF;
  return low >= static_cast<uint16_t>(StreamFrameKind::kOpen) &&
         low <= static_cast<uint16_t>(StreamFrameKind::kCancel);
}

struct OpenHeader {
  CallId id;
  uint16_t method = 0;
  uint32_t remaining_us = 0;  // until the deadline of the whole stream; 0: it has none
  bool waits = false;
  ByteSpan extras = {};
  Priority priority = Priority::kNormal;
  uint32_t windows = 0;  // how many the body begins with
};

struct DataHeader {
  CallId id;
  bool last = false;
  bool has_message = true;
  uint32_t number = 0;
};

struct CreditHeader {
  CallId id;
  uint16_t messages = 0;
  uint32_t bytes = 0;
};

struct EndHeader {
  CallId id;
  uint16_t status = 0;    // absl::StatusCode
  bool not_run = false;   // errors only
  uint32_t messages = 0;  // that the server has sent, modulo 2^32
  ByteSpan extras = {};
  ByteSpan text = {};
};

// --- encoding. REQUIRES (all): the frame's bytes are writable at `to` ---------------------------

constexpr size_t OpenFrameBytes(uint32_t windows, size_t extras_bytes) {
  return kCallHeaderBytes + windows * kWindowBytes + ExtrasBlockBytes(extras_bytes);
}
// All but the windows themselves, which stand behind the header.
inline void EncodeOpen(const OpenHeader& header, std::byte* to) {
  const auto kind =
      static_cast<uint32_t>(StreamFrameKind::kOpen) | (header.waits ? kOpenWaitsBit : 0u) |
      (header.extras.empty() ? 0u : kExtrasBit) | BitsOf(header.priority) | header.windows << 8;
  EncodeCallHeader(header.id, header.method, static_cast<uint16_t>(kind), header.remaining_us, to);
  if (!header.extras.empty()) {
    EncodeExtrasBlock(AsStringView(header.extras),
                      to + kCallHeaderBytes + header.windows * kWindowBytes);
  }
}

// The kind of data and credit.
constexpr uint16_t TwoWayKind(StreamFrameKind kind, bool to_opener) {
  return static_cast<uint16_t>(static_cast<uint32_t>(kind) | (to_opener ? kToOpenerBit : 0u));
}

// The header only: the message follows it.
inline void EncodeData(CallId id, uint16_t flags, uint32_t number, bool to_opener, std::byte* to) {
  EncodeCallHeader(id, flags, TwoWayKind(StreamFrameKind::kData, to_opener), number, to);
}

inline void EncodeCredit(const CreditHeader& header, bool to_opener, std::byte* to) {
  EncodeCallHeader(header.id, header.messages, TwoWayKind(StreamFrameKind::kCredit, to_opener),
                   header.bytes, to);
}

constexpr size_t EndFrameBytes(size_t extras_bytes, size_t text_bytes) {
  return kCallHeaderBytes + ExtrasBlockBytes(extras_bytes) + kEndCountBytes + text_bytes;
}
inline void EncodeEnd(const EndHeader& header, std::byte* to) {
  const auto kind =
      static_cast<uint32_t>(StreamFrameKind::kEnd) | (header.extras.empty() ? 0u : kExtrasBit);
  const uint32_t status = header.status | (header.not_run ? kNotRunBit : 0u);
  EncodeCallHeader(header.id, static_cast<uint16_t>(status), static_cast<uint16_t>(kind),
                   static_cast<uint32_t>(header.text.size()), to);
  to += kCallHeaderBytes;
  if (!header.extras.empty()) {
    EncodeExtrasBlock(AsStringView(header.extras), to);
    to += ExtrasBlockBytes(header.extras.size());
  }
  StoreLe64(to, header.messages);
  if (!header.text.empty()) {
    std::memcpy(to + kEndCountBytes, header.text.data(), header.text.size());
  }
}

inline void EncodeStreamCancel(CallId id, std::byte* to) {
  EncodeCallHeader(id, 0, static_cast<uint16_t>(StreamFrameKind::kCancel), 0, to);
}

inline constexpr uint16_t kStreamReleaseKind =
    static_cast<uint16_t>(CallFrameKind::kReleased) | kOfStreamBit;
// Decoded as every notice (frame.h).
inline void EncodeStreamRelease(CallId id, std::byte* to) {
  EncodeCallHeader(id, 0, kStreamReleaseKind, 0, to);
}

// --- decoding. REQUIRES (all): IsStreamKind(CallFrameKindOf(frame)) -----------------------------

// False: it is no open, its windows, its extras or its priority are none, or it has more bytes than
// they. header->windows of `windows` are filled in.
[[nodiscard]] bool DecodeOpen(ByteSpan frame, OpenHeader* header,
                              std::array<Window, kMaxWindows>* windows);

// False: there are flags beside the two, one that has no message is not the last or has bytes, or
// it is for the other side of a stream than `to_opener` says.
[[nodiscard]] inline bool DecodeData(ByteSpan frame, bool to_opener, DataHeader* header,
                                     ByteSpan* message) {
  const uint16_t flags = LoadLe16(frame.data() + 8);
  *header = {CallIdOf(frame), (flags & kLastMessage) != 0, (flags & kNoMessage) == 0,
             LoadLe32(frame.data() + 12)};
  *message = frame.subspan(kCallHeaderBytes);
  if (CallFrameKindOf(frame) != TwoWayKind(StreamFrameKind::kData, to_opener)) return false;
  return flags <= kLastMessage || (flags == (kLastMessage | kNoMessage) && message->empty());
}

// False: it gives nothing, has a body, or is for the other side.
[[nodiscard]] inline bool DecodeCredit(ByteSpan frame, bool to_opener, CreditHeader* header) {
  *header = {CallIdOf(frame), LoadLe16(frame.data() + 8), LoadLe32(frame.data() + 12)};
  return CallFrameKindOf(frame) == TwoWayKind(StreamFrameKind::kCredit, to_opener) &&
         frame.size() == kCallHeaderBytes && (header->messages != 0 || header->bytes != 0);
}

// False: it is no end, its extras are none, the code is none of absl::StatusCode, an OK has a text
// or was not run, or the text is longer than kMaxStatusText or than the frame, or shorter.
[[nodiscard]] bool DecodeEnd(ByteSpan frame, EndHeader* header);

// False: there is more than its kind and its id.
[[nodiscard]] inline bool DecodeStreamCancel(ByteSpan frame, CallId* id) {
  *id = CallIdOf(frame);
  return CallFrameKindOf(frame) == static_cast<uint16_t>(StreamFrameKind::kCancel) &&
         frame.size() == kCallHeaderBytes && LoadLe16(frame.data() + 8) == 0 &&
         LoadLe32(frame.data() + 12) == 0;
}

}  // namespace weft
