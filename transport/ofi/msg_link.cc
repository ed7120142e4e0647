#include "transport/ofi/msg_link.h"

#include <utility>

#include "transport/ofi/endpoint_lines.h"
#include "transport/ofi/msg_domain.h"

namespace weft {

MsgLink::MsgLink(MsgDomain* domain, LinkHandler* handler, uint64_t nonce)
    : FabricLink(&domain->parts(), handler),
      domain_(domain),
      nonce_(nonce),
      warm_up_(domain->TakeWarmUp()) {
  domain_->BeginConnecting();
}

MsgLink::~MsgLink() {
  Detach(absl::CancelledError("the link was closed"), false);
  domain_->GiveWarmUp(warm_up_);
}

void MsgLink::Take(EndpointPtr endpoint, const EndpointQueues& queues) {
  endpoint_ = std::move(endpoint);
  queues_ = queues;
  UseEndpoint(endpoint_.get(), FI_ADDR_UNSPEC,
              queues.seat == nullptr ? nullptr : queues.seat->group);
}

void MsgLink::OnConnected() {
  EndConnecting();
  const absl::Status watched = domain_->OnSocketKnown(queues_, warm_up_);
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
  warm_up_->Clear();
  endpoint_.reset();
  if (queues_.receives != nullptr) {
    domain_->parts().queues.Leave(std::exchange(queues_, {}));
  }
}

bool MsgLink::comes_unseen() const { return domain_->parts().objects->groups != nullptr; }

// In the order of a receiver's need.
void MsgLink::GoCold() {
  warm_up_->Begin(/*call=*/nullptr);
  if (above_ != nullptr) above_->ListLines(warm_up_);
  warm_up_->Add(static_cast<const FabricLink*>(this), sizeof(FabricLink));
  EndpointLines(endpoint()).ListForMessage(warm_up_);
}

}  // namespace weft
