// What a request, a one-way message or a reply has beside its message: extras in front of it, and
// an attachment behind it.
//
// Extras (metadata, and the details of errors) are {u32 bytes, u32 0}, so many bytes, at least one,
// and zeros up to a multiple of 8. An attachment is all that stands behind the message, at least
// one byte; in front of the message, behind extras, is then {u32 bytes of the message, u32 0}.
// Bits of the frame's kind (frame.h) say which of them there are.
//
// Threads: values. Lifetime: what is decoded lies in the frame.
// Errors: Decode* return false for what no peer of this protocol sends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/strings/cord.h"
#include "core/bytes.h"
#include "rpc/wire/metadata.h"

namespace weft {

// In the kind of a request or a reply: it has extras.
inline constexpr uint16_t kExtrasBit = 0x8000;
inline constexpr size_t kExtrasHeaderBytes = 8;
// In the kind of a request, a reply or a one-way message: it has an attachment.
inline constexpr uint16_t kAttachmentBit = 0x4000;
inline constexpr size_t kAttachmentHeaderBytes = 8;
// Of extras, encoded: metadata and the details of an error have half each. Told in the hello by a
// side that takes extras.
inline constexpr uint32_t kMaxExtrasBytes = 2 * kMaxMetadataBytes;

// What extras of `bytes` take in a frame; of 0 bytes: nothing.
constexpr size_t ExtrasBlockBytes(size_t bytes) {
  return bytes == 0 ? 0 : kExtrasHeaderBytes + ((bytes + 7) & ~size_t{7});
}

// REQUIRES: 1..2^32-1 bytes; ExtrasBlockBytes() of them writable at `to`.
inline void EncodeExtrasBlock(std::string_view extras, std::byte* to) {
  StoreLe32(to, static_cast<uint32_t>(extras.size()));
  StoreLe32(to + 4, 0);
  std::memcpy(to + kExtrasHeaderBytes, extras.data(), extras.size());
  std::byte* const end = to + kExtrasHeaderBytes + extras.size();
  std::memset(end, 0, static_cast<size_t>(to + ExtrasBlockBytes(extras.size()) - end));
}

// Takes extras off the front of a body. False: there are none, or more than kMaxExtrasBytes, or
// more than the body has; or what must be 0 is not.
[[nodiscard]] inline bool DecodeExtrasBlock(ByteSpan* body, ByteSpan* extras) {
  if (body->size() < kExtrasHeaderBytes) return false;
  const uint32_t bytes = LoadLe32(body->data());
  if (LoadLe32(body->data() + 4) != 0 || bytes == 0 || bytes > kMaxExtrasBytes) return false;
  const size_t block_bytes = ExtrasBlockBytes(bytes);
  if (block_bytes > body->size()) return false;
  *extras = body->subspan(kExtrasHeaderBytes, bytes);
  for (const std::byte zero : body->first(block_bytes).subspan(kExtrasHeaderBytes + bytes)) {
    if (zero != std::byte{0}) return false;
  }
  *body = body->subspan(block_bytes);
  return true;
}

// Takes an attachment off the end of a body, and its header off the front. False: there is none, or
// what must be 0 is not.
[[nodiscard]] inline bool DecodeAttachment(ByteSpan* body, ByteSpan* attachment) {
  if (body->size() < kAttachmentHeaderBytes) return false;
  const uint32_t message_bytes = LoadLe32(body->data());
  if (LoadLe32(body->data() + 4) != 0) return false;
  *body = body->subspan(kAttachmentHeaderBytes);
  if (message_bytes >= body->size()) return false;
  *attachment = body->subspan(message_bytes);
  *body = body->first(message_bytes);
  return true;
}

// What a one-way message or a request, behind its windows, has beside its message: takes it off the
// body, and leaves empty what there is not. False: it makes no sense.
[[nodiscard]] inline bool DecodeBeside(uint16_t kind, ByteSpan* body, ByteSpan* extras,
                                       ByteSpan* attachment) {
  *extras = *attachment = {};
  return ((kind & kExtrasBit) == 0 || DecodeExtrasBlock(body, extras)) &&
         ((kind & kAttachmentBit) == 0 || DecodeAttachment(body, attachment));
}

// What is to be sent. Lifetime: refers to what it was given.
struct Beside {
  std::string_view extras;                 // encoded; empty: none
  const absl::Cord* attachment = nullptr;  // null: none; else not empty

  // In the frame, in front of the message and behind it.
  size_t bytes_before() const {
    return ExtrasBlockBytes(extras.size()) + (attachment != nullptr ? kAttachmentHeaderBytes : 0);
  }
  size_t bytes_behind() const { return attachment != nullptr ? attachment->size() : 0; }
  // In the kind of the frame.
  uint16_t bits() const {
    return static_cast<uint16_t>((extras.empty() ? 0u : kExtrasBit) |
                                 (attachment != nullptr ? kAttachmentBit : 0u));
  }

  // Writes all of it, and returns where the message belongs, which has `message_bytes`. REQUIRES:
  // all these bytes are writable at `to`.
  std::byte* Encode(size_t message_bytes, std::byte* to) const {
    if (!extras.empty()) EncodeExtrasBlock(extras, to);
    to += ExtrasBlockBytes(extras.size());
    if (attachment == nullptr) return to;
    StoreLe64(to, message_bytes);
    to += kAttachmentHeaderBytes;
    std::byte* behind = to + message_bytes;
    for (const absl::string_view piece : attachment->Chunks()) {
      std::memcpy(behind, piece.data(), piece.size());
      behind += piece.size();
    }
    return to;
  }
};

}  // namespace weft
