#include "transport/ofi/msg_link.h"

#include <utility>

#include "transport/ofi/msg_domain.h"

namespace weft {

MsgLink::MsgLink(MsgDomain* domain, LinkHandler* handler, uint64_t nonce)
    : FabricLink(&domain->parts(), handler), domain_(domain), nonce_(nonce) {
  domain_->BeginConnecting();
}

MsgLink::~MsgLink() { Detach(absl::CancelledError("the link was closed"), false); }

void MsgLink::Take(EndpointPtr endpoint) {
  endpoint_ = std::move(endpoint);
  UseEndpoint(endpoint_.get());
}

void MsgLink::OnConnected() {
  EndConnecting();
  BecomeUp();
}

void MsgLink::OnDisconnected(const absl::Status& why) {
  EndConnecting();
  Fail(why);
}

void MsgLink::EndConnecting() {
  if (std::exchange(connecting_, false)) domain_->EndConnecting();
}

// Closing an endpoint never blocks here, and afterwards the provider touches nothing of it. What
// it still reports about its works is recognized as stale.
void MsgLink::StopProvider(bool /*peer_is_gone*/) {
  EndConnecting();
  domain_->Forget(this);
  endpoint_.reset();
}

}  // namespace weft
