// The bytes behind a received message, for those who want to keep them.
//
// Threads: the engine's; what is returned, any.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/cord.h"
#include "core/bytes.h"
#include "transport/connection.h"

namespace weft {

// Attachments below this are copied, in bytes: that takes about a microsecond, and what is kept
// holds the whole buffer that it was received in.
inline constexpr size_t kCopiedAttachmentBytes = 16 << 10;

// `attachment` as a Cord: what was received, if the connection keeps that, else a copy. REQUIRES:
// inside OnMessage() of this connection, and of its message.
// It stands behind a message of so many bytes: what is less than those is copied.
inline absl::Cord KeepAttachment(Connection& connection, size_t message_bytes,
                                 ByteSpan attachment) {
  const absl::string_view bytes(reinterpret_cast<const char*>(attachment.data()),
                                attachment.size());
  if (attachment.size() < std::max(kCopiedAttachmentBytes, message_bytes)) return absl::Cord(bytes);
  std::shared_ptr<const void> kept = connection.KeepMessage();
  if (kept == nullptr) return absl::Cord(bytes);
  return absl::MakeCordFromExternal(bytes, [kept = std::move(kept)] {});
}

}  // namespace weft
