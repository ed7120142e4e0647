#include "transport/ofi/msg_link.h"

#include <utility>

#include "transport/ofi/endpoint_lines.h"
#include "transport/ofi/msg_domain.h"

namespace weft {

MsgLink::MsgLink(MsgDomain* domain, LinkHandler* handler, uint64_t nonce)
    : FabricLink(&domain->parts(), handler),
      domain_(domain),
      nonce_(nonce),
      prefetch_(domain->TakePrefetchList()) {
  domain_->BeginConnecting();
}

MsgLink::~MsgLink() {
  Detach(absl::CancelledError("the link was closed"), false);
  domain_->GivePrefetchList(prefetch_);
}

void MsgLink::Take(EndpointPtr endpoint, const EndpointQueues& queues) {
  endpoint_ = std::move(endpoint);
  queues_ = queues;
  UseEndpoint(endpoint_.get(), FI_ADDR_UNSPEC,
              queues.seat == nullptr ? nullptr : queues.seat->group);
}

void MsgLink::OnConnected() {
  EndConnecting();
  const absl::Status watched = domain_->OnSocketKnown(queues_, prefetch_);
  watched.ok() ? BecomeUp() : Fail(watched);
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
  prefetch_->Clear();
  endpoint_.reset();
  if (queues_.receives != nullptr) {
    domain_->parts().queues.Leave(std::exchange(queues_, {}));
  }
}

void MsgLink::GoCold() {
  prefetch_->Begin(/*peer_flag=*/nullptr);
  prefetch_->Add(static_cast<const FabricLink*>(this), sizeof(FabricLink));
  EndpointLines(endpoint()).ListForMessage(prefetch_);
}

}  // namespace weft
