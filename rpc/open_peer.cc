// The channels of servers to their peers: what joins rpc/client and rpc/server.
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_parts.h"
#include "rpc/peer/peer_session.h"
#include "rpc/server/server.h"
#include "rpc/server/server_core.h"

namespace weft {

namespace {

// No DNS name ends in a number, or has a colon.
bool IsNumericAddress(const std::string& host) {
  const size_t last = host.rfind('.') + 1;  // npos + 1: 0
  return host.find(':') != std::string::npos ||
         (last < host.size() && host.find_first_not_of("0123456789", last) == std::string::npos);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Channel>> Server::OpenPeer(const std::string& peer_id,
                                                          const std::string& address,
                                                          const ChannelOptions& options) {
  const std::optional<SecurityOptions>& security = options.security;
  if (security.has_value() && security->psk_name.empty() && security->server_name.empty() &&
      security->expected_uri.empty()) {
    return absl::InvalidArgumentError(StrCat(
        "the channel to peer ", peer_id,
        " has security, and does not say whose certificate it wants: set "
        "SecurityOptions::expected_uri or server_name, for the peer may be the one that connects"));
  }
  if (security.has_value() && security->psk_name.empty() &&
      IsNumericAddress(security->server_name)) {
    return absl::InvalidArgumentError(
        StrCat("the channel to peer ", peer_id, " wants a certificate of the numeric address \"",
               security->server_name,
               "\", which says nothing of a peer that connects: set SecurityOptions::expected_uri, "
               "or a DNS name as server_name"));
  }
  WEFT_ASSIGN_OR_RETURN(PeerSession* const session, cores_.front()->ReservePeer(peer_id, address));
  // For errors and logs; the session knows where to dial.
  const std::string at = address.empty() ? "" : StrCat(" (", address, ")");
  internal::ChannelParts parts{.engines = {&session->engine()},
                               .address = StrCat("peer ", peer_id, at),
                               .options = options,
                               .session = session};
  parts.options.connect_at_once = false;
  absl::StatusOr<std::unique_ptr<Channel>> channel = internal::MakeChannel(std::move(parts));
  if (!channel.ok()) cores_.front()->UnreservePeer(*session);
  return channel;
}

}  // namespace weft
