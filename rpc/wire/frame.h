// The frames of calls: what stands in front of every protobuf message on a connection.
//
// Each transport message is one frame: a header of 16 bytes, little-endian, and a body.
//
//   request   {u32 slot, u32 generation, u16 method, u16 kind, u32 remaining_us}
//                                                        body: windows, extras, then the request,
//                                                        attachment
//   reply     {u32 slot, u32 generation, u16 status, u16 kind, u32 text_bytes}
//                                                        body: extras, then the status text or
//                                                        (status OK) the reply, attachment
//   cancel    {u32 slot, u32 generation, u16 0,      u16 kind, u32 0}             no body
//   released  {u32 slot, u32 generation, u16 0,      u16 kind, u32 0}             no body
//   goaway    {u32 0,    u32 0,          u16 0,      u16 kind, u32 unanswered}    no body
//   moved     {u32 0,    u32 0,          u16 0,      u16 kind, u32 0}             no body
//   idle      {u32 0,    u32 0,          u16 0,      u16 kind, u32 received}      no body
//   one-way   {u32 0,    u32 0,          u16 method, u16 kind, u32 remaining_us}
//                                                        body: extras, then the message,
//                                                        attachment
//
// `slot` and `generation` name a call on its connection; the client chooses them.
// docs/wire_format.md says what each side must check. The low byte of `kind` says which frame it
// is; the lower four bits of the high byte are the number of windows of a request, or of the open
// of a stream, else 0; the next two are the priority of a request, a one-way message or an open,
// else 0; the highest two bits of a request, a reply or a one-way message are set if it has extras,
// and an attachment. The highest bit of `status` is set in an error whose call was not run: no
// handler has seen it.
//
// A window is client memory that the call, or stream, lends to the server: 32 bytes,
// {u64 key, u64 offset, u64 length, u32 rights, u32 0}. Windows are numbered from 1.
// Extras and attachments: beside.h.
//
// Threads: values. Errors: Decode* return false for a frame that no peer of this protocol sends.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "core/bytes.h"
#include "core/slab.h"
#include "rpc/wire/beside.h"
#include "rpc/wire/service.h"
#include "transport/region_handle.h"
#include "transport/transport.h"

namespace weft {

// What clients and servers must have in common; raised when frames change their meaning.
inline constexpr uint32_t kRpcProtocolVersion = 1;

inline constexpr size_t kCallHeaderBytes = 16;

// The largest encoded request or reply, in bytes: one transport message less the header.
inline constexpr size_t kMaxPayloadBytes = kMaxMessageBytes - kCallHeaderBytes;

// Status texts are for people: longer ones are cut. Small enough to travel in one eager frame.
inline constexpr size_t kMaxStatusText = 1024;

// The bound of both sides' call slots on one connection. 4096 calls of 1 us keep any server busy;
// each slot costs the server one arena once it was used.
inline constexpr uint32_t kMaxOutstandingCalls = 4096;

// Slots for control calls, beside the others: so many never wait for the reply to a call of another
// priority. Heartbeats, votes and renewals of one program to another: a handful at a time.
inline constexpr uint32_t kControlCalls = 8;

// Windows of one call. Eight payloads are more than a message has use for (what is scattered more
// finely belongs in a RemoteRegion), and their table leaves an eager frame to the request.
inline constexpr uint32_t kMaxWindows = 8;
inline constexpr size_t kWindowBytes = 32;

enum class CallFrameKind : uint16_t {
  kRequest = 1,
  kReply = 2,
  kCancel = 3,
  kReleased = 4,
  // 5 to 9 are those of streams, 13 to 15 those of peers.
  kGoaway = 10,
  kOneWay = 12,
  kMoved = 16,
  kIdle = 17,
};

// The name of one call on one connection: the client's handle of the slot that it has there.
using CallId = SlabHandle;

struct RequestHeader {
  CallId id;
  uint16_t method = 0;
  uint32_t remaining_us = 0;  // until the caller's deadline; 0: it has none
};

// Memory of the client that a call lends: to be read, or to be written.
struct Window {
  RemoteSpan span;
  Rights rights = 0;  // kMayRead or kMayWrite
};

struct ReplyHeader {
  CallId id;
  uint16_t status = 0;  // absl::StatusCode
  uint32_t text_bytes = 0;
  bool not_run = false;      // errors only
  ByteSpan extras = {};      // in front of the text or the reply; empty: there are none
  ByteSpan attachment = {};  // behind the reply; the same
};

// In the status of a reply.
inline constexpr uint16_t kNotRunBit = 0x8000;

// The kind of a received frame as it stands there, known or not; 0 when it is too short for one.
inline uint16_t CallFrameKindOf(ByteSpan frame) {
  return frame.size() < kCallHeaderBytes ? 0 : LoadLe16(frame.data() + 10);
}

// In the kind of what begins a call: 0 for kNormal, 1 for kControl, 3 for kBackground.
inline constexpr uint16_t kPriorityBits = 0x3000;
constexpr uint16_t BitsOf(Priority priority) {
  return static_cast<uint16_t>((static_cast<uint32_t>(priority) ^ 1) << 12);
}
static_assert(BitsOf(Priority::kNormal) == 0 && BitsOf(Priority::kControl) == 0x1000 &&
              BitsOf(Priority::kBackground) == 0x3000);
// The two bits may be 2, which stands for none.
constexpr bool HasPriority(uint16_t kind) { return (kind & kPriorityBits) != 0x2000; }
// REQUIRES: HasPriority().
constexpr Priority PriorityOf(uint16_t kind) {
  return static_cast<Priority>((kind & kPriorityBits) >> 12 ^ 1);
}

// How many windows a request, or an open of a stream, of that kind has.
inline constexpr uint16_t kWindowsBits = 0x0F00;
constexpr uint32_t WindowsOf(uint16_t kind) { return (kind & kWindowsBits) >> 8; }

// The kind of a request with `windows` windows.
// `beside`: kExtrasBit, kAttachmentBit.
constexpr uint16_t RequestKind(uint32_t windows, uint32_t beside = 0,
                               Priority priority = Priority::kNormal) {
  return static_cast<uint16_t>(static_cast<uint32_t>(CallFrameKind::kRequest) | windows << 8 |
                               beside | BitsOf(priority));
}
// A reply, whatever it has beside its message.
constexpr bool IsReplyKind(uint16_t kind) {
  return (kind & ~(kExtrasBit | kAttachmentBit)) == static_cast<uint16_t>(CallFrameKind::kReply);
}

// A header in two words. REQUIRES (all Encode*): kCallHeaderBytes writable bytes at `to`.
inline void EncodeCallHeader(CallId id, uint16_t number, uint16_t kind, uint32_t last,
                             std::byte* to) {
  StoreLe64(to, uint64_t{id.generation} << 32 | id.slot);
  StoreLe64(to + 8, uint64_t{last} << 32 | uint32_t{kind} << 16 | number);
}

inline void EncodeRequest(const RequestHeader& header, std::byte* to,
                          uint16_t kind = RequestKind(0)) {
  EncodeCallHeader(header.id, header.method, kind, header.remaining_us, to);
}

// Of a message to a one-way method, which is no call: it has no id.
constexpr uint16_t OneWayKind(uint32_t beside = 0, Priority priority = Priority::kNormal) {
  return static_cast<uint16_t>(static_cast<uint32_t>(CallFrameKind::kOneWay) | beside |
                               BitsOf(priority));
}
inline void EncodeOneWay(uint16_t method, uint32_t remaining_us, std::byte* to,
                         uint16_t kind = OneWayKind()) {
  EncodeCallHeader({}, method, kind, remaining_us, to);
}

// `bits`: kExtrasBit, kAttachmentBit; what they stand for is written elsewhere (beside.h).
inline void EncodeReply(const ReplyHeader& header, std::byte* to, uint16_t bits = 0) {
  const uint32_t status = header.status | (header.not_run ? kNotRunBit : 0u);
  const uint32_t kind = static_cast<uint32_t>(CallFrameKind::kReply) | bits;
  EncodeCallHeader(header.id, static_cast<uint16_t>(status), static_cast<uint16_t>(kind),
                   header.text_bytes, to);
}

// A frame that says nothing but its kind: kCancel, kReleased or kMoved.
inline void EncodeNotice(CallFrameKind kind, CallId id, std::byte* to) {
  EncodeCallHeader(id, 0, static_cast<uint16_t>(kind), 0, to);
}

// `unanswered`: calls and streams that the server has, and large messages that are under way.
inline void EncodeGoaway(uint32_t unanswered, std::byte* to) {
  EncodeCallHeader({}, 0, static_cast<uint16_t>(CallFrameKind::kGoaway), unanswered, to);
}

// Another process serves the address from now on, and has room for this client.
inline void EncodeMoved(std::byte* to) { EncodeNotice(CallFrameKind::kMoved, {}, to); }

// Nothing was done on this connection for long. `received`: messages of the client's that the
// server has, modulo 2^32.
inline void EncodeIdle(uint32_t received, std::byte* to) {
  EncodeCallHeader({}, 0, static_cast<uint16_t>(CallFrameKind::kIdle), received, to);
}

inline void EncodeCancel(CallId id, std::byte* to) { EncodeNotice(CallFrameKind::kCancel, id, to); }

// REQUIRES: kWindowBytes writable bytes at `to`.
inline void EncodeWindow(const Window& window, std::byte* to) {
  StoreLe64(to, window.span.key);
  StoreLe64(to + 8, window.span.offset);
  StoreLe64(to + 16, window.span.length);
  StoreLe32(to + 24, window.rights);
  StoreLe32(to + 28, 0);
}

// REQUIRES (all Decode*): CallFrameKindOf(frame) is that kind. `body` begins with the windows.
inline RequestHeader DecodeRequest(ByteSpan frame, ByteSpan* body) {
  const std::byte* at = frame.data();
  *body = frame.subspan(kCallHeaderBytes);
  return {{LoadLe32(at), LoadLe32(at + 4)}, LoadLe16(at + 8), LoadLe32(at + 12)};
}

// False: it has an id, or its priority is none. `body` begins with what is beside the message.
[[nodiscard]] inline bool DecodeOneWay(ByteSpan frame, RequestHeader* header, ByteSpan* body) {
  *header = DecodeRequest(frame, body);
  return header->id == CallId() && HasPriority(CallFrameKindOf(frame));
}

// False: the text is longer than the frame or than kMaxStatusText, an OK reply has a text, an error
// has bytes after its text or an attachment, the code is none of absl::StatusCode, an OK call was
// not run, or what is beside the reply makes no sense.
[[nodiscard]] inline bool DecodeReply(ByteSpan frame, ReplyHeader* header, ByteSpan* body) {
  constexpr uint16_t kLastStatusCode = 16;  // UNAUTHENTICATED
  const std::byte* at = frame.data();
  const uint16_t status = LoadLe16(at + 8);
  *header = {{LoadLe32(at), LoadLe32(at + 4)},
             static_cast<uint16_t>(status & ~kNotRunBit),
             LoadLe32(at + 12),
             (status & kNotRunBit) != 0,
             {},
             {}};
  *body = frame.subspan(kCallHeaderBytes);
  if (!DecodeBeside(CallFrameKindOf(frame), body, &header->extras, &header->attachment)) {
    return false;
  }
  if (header->status == 0) return header->text_bytes == 0 && !header->not_run;
  return header->status <= kLastStatusCode && header->text_bytes <= kMaxStatusText &&
         header->text_bytes == body->size() && header->attachment.empty();
}

// An OK reply, as it must be: DecodeReply() finds nothing wrong with it. Its body begins at
// kCallHeaderBytes.
inline bool IsOkReply(ByteSpan frame) {
  constexpr uint64_t kWord = uint64_t{static_cast<uint16_t>(CallFrameKind::kReply)} << 16;
  return frame.size() >= kCallHeaderBytes && LoadLe64(frame.data() + 8) == kWord;
}

// The call that a frame names. REQUIRES: frame.size() >= kCallHeaderBytes.
inline CallId CallIdOf(ByteSpan frame) {
  return {LoadLe32(frame.data()), LoadLe32(frame.data() + 4)};
}

// Takes `count` windows off the front of a request's body. False: there are fewer bytes, a window
// ends beyond the last address, its rights are not exactly one, or a reserved field is not 0.
// REQUIRES: count <= kMaxWindows.
[[nodiscard]] inline bool DecodeWindows(uint32_t count, ByteSpan* body,
                                        std::array<Window, kMaxWindows>* windows) {
  if (body->size() < count * kWindowBytes) return false;
  for (uint32_t i = 0; i < count; ++i) {
    const std::byte* at = body->data() + i * kWindowBytes;
    const RemoteSpan span = {LoadLe64(at), LoadLe64(at + 8), LoadLe64(at + 16)};
    const uint32_t rights = LoadLe32(at + 24);
    if (span.length > ~uint64_t{0} - span.offset) return false;
    if ((rights != kMayRead && rights != kMayWrite) || LoadLe32(at + 28) != 0) return false;
    (*windows)[i] = {span, static_cast<Rights>(rights)};
  }
  *body = body->subspan(count * kWindowBytes);
  return true;
}

// Of goaway and idle, that have a number and nothing else. False: fields that must be 0 are not, or
// there is a body. REQUIRES (this and DecodeNotice()): as CallIdOf().
[[nodiscard]] inline bool DecodeNumber(ByteSpan frame, uint32_t* number) {
  *number = LoadLe32(frame.data() + 12);
  return frame.size() == kCallHeaderBytes && CallIdOf(frame) == CallId() &&
         LoadLe16(frame.data() + 8) == 0;
}

// Of cancel, released and moved, whose id is 0. False: fields that must be 0 are not, or there is a
// body.
[[nodiscard]] inline bool DecodeNotice(ByteSpan frame, CallId* id) {
  const std::byte* at = frame.data();
  *id = {LoadLe32(at), LoadLe32(at + 4)};
  return frame.size() == kCallHeaderBytes && LoadLe16(at + 8) == 0 && LoadLe32(at + 12) == 0;
}

}  // namespace weft
