// The channels of servers to their peers: what joins rpc/client and rpc/server.
#include "core/status.h"
#include "rpc/client/channel.h"
#include "rpc/peer/peer_session.h"
#include "rpc/server/server.h"
#include "rpc/server/server_core.h"

namespace weft {

absl::StatusOr<std::unique_ptr<Channel>> Server::OpenPeer(const std::string& peer_id,
                                                          const std::string& address,
                                                          const ChannelOptions& options) {
  WEFT_ASSIGN_OR_RETURN(PeerSession* const session, core_->ReservePeer(peer_id, address));
  absl::StatusOr<std::unique_ptr<Channel>> channel = internal::OpenOn(*session, options);
  if (!channel.ok()) core_->UnreservePeer(*session);
  return channel;
}

}  // namespace weft
