#include "transport/ofi/tcp_link.h"

#include <utility>

#include "transport/ofi/tcp_domain.h"

namespace weft {

TcpLink::TcpLink(TcpDomain* domain, LinkHandler* handler, uint64_t nonce)
    : FabricLink(domain, handler, /*doorbell=*/nullptr), tcp_(domain), nonce_(nonce) {
  ++tcp_->connecting_;
}

TcpLink::~TcpLink() { Detach(absl::CancelledError("the link was closed"), false); }

void TcpLink::Take(EndpointPtr endpoint) {
  endpoint_ = std::move(endpoint);
  UseEndpoint(endpoint_.get(), FI_ADDR_UNSPEC);
}

void TcpLink::OnConnected() {
  EndConnecting();
  BecomeUp();
}

void TcpLink::OnDisconnected(const absl::Status& why) {
  EndConnecting();
  Fail(why);
}

void TcpLink::EndConnecting() {
  if (std::exchange(connecting_, false)) --tcp_->connecting_;
}

// Closing an endpoint never blocks here, and afterwards the provider touches nothing of it. What
// it still reports about its works is recognized as stale.
void TcpLink::StopProvider(bool /*peer_is_gone*/) {
  EndConnecting();
  tcp_->Forget(this);
  endpoint_.reset();
}

}  // namespace weft
