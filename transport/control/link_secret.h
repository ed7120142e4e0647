// The secret of a link (LinkPeer::secret), out of the TLS of its control connection. It is TLS's
// exporter (RFC 8446, 7.5) with kLinkSecretLabel and 81 bytes of context, little-endian:
//
//    0 32  SHA-256 of the ClientHello's body, as it was sent
//   32 32  SHA-256 of the ServerHello's body, as it was sent
//   64 16  the link's nonce, high and low
//   80  1  the kind of its path (PathKind)
//
// So two sides have the same secret only if they are the ends of one TLS connection, have read the
// hellos that were sent, and mean the same attempt at the same path. Nothing that one link has can
// be used for another.
//
// Threads: as a plain value.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/control/control_frame.h"
#include "transport/link.h"
#include "transport/path.h"
#include "transport/tls/tls_stream.h"

namespace weft {

inline constexpr std::string_view kLinkSecretLabel = "EXPORTER-weft-link";

class LinkSecrets {
 public:
  // A frame that was sent or received: what is no hello is not looked at.
  void Note(ControlType type, ByteSpan body);

  // REQUIRES: `control` is up.
  absl::StatusOr<LinkSecret> Derive(const TlsStream& control, const LinkPeer& peer,
                                    PathKind kind) const;

 private:
  static constexpr size_t kHashBytes = 32;

  std::array<std::byte, 2 * kHashBytes> hellos_ = {};  // the client's, the server's
};

}  // namespace weft
