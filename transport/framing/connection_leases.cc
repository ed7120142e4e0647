#include "transport/framing/connection_leases.h"

#include <variant>

#include "transport/leases/grant_message.h"

namespace weft {
namespace {

absl::Status Rule(bool kept) {
  if (kept) return absl::OkStatus();
  return absl::DataLossError("the peer broke the protocol: a grant that nobody asked for");
}

}  // namespace

struct ConnectionLeases::Dispatch {
  absl::Status operator()(const GrantResolve& grant) { return self.granted().OnResolve(grant); }
  absl::Status operator()(const GrantDerive& grant) { return self.granted().OnDerive(grant); }
  absl::Status operator()(const GrantRenew& grant) {
    self.granted().OnRenew(grant);
    return absl::OkStatus();
  }
  absl::Status operator()(const GrantReturn& grant) {
    self.granted().OnReturn(grant);
    return absl::OkStatus();
  }
  absl::Status operator()(const GrantGranted& grant) { return Rule(self.held().OnGranted(grant)); }
  absl::Status operator()(const GrantRefused& grant) { return Rule(self.held().OnRefused(grant)); }
  absl::Status operator()(const GrantRenewed& grant) { return Rule(self.held().OnRenewed(grant)); }
  absl::Status operator()(const GrantDerived& grant) { return Rule(self.held().OnDerived(grant)); }
  absl::Status operator()(const GrantEnded& grant) {
    self.held().OnEnded(grant);
    return absl::OkStatus();
  }

  ConnectionLeases& self;
};

HeldLeases& ConnectionLeases::held() {
  if (held_ == nullptr) {
    held_ = std::make_unique<HeldLeases>(static_cast<HeldLeases::Host*>(this), &exports_->clock(),
                                         &exports_->timers());
  }
  return *held_;
}

GrantedLeases& ConnectionLeases::granted() {
  if (granted_ == nullptr) {
    granted_ = std::make_unique<GrantedLeases>(static_cast<GrantedLeases::Host*>(this), exports_);
  }
  return *granted_;
}

absl::Status ConnectionLeases::OnGrant(ByteSpan grant) {
  GrantMessage message;
  if (!available() || !DecodeGrant(grant, &message)) {
    return absl::DataLossError("the peer broke the protocol: a malformed grant");
  }
  return std::visit(Dispatch{*this}, message);
}

void ConnectionLeases::EndOverdue() {
  if (held_ != nullptr) held_->EndOverdue();
}

void ConnectionLeases::End(const absl::Status& why) {
  if (granted_ != nullptr) granted_->End();
  if (held_ != nullptr) held_->End(why);
}

void ConnectionLeases::SendGrant(const GrantMessage& message) {
  host_->SendGrant(EncodeGrant(message).bytes());
}

}  // namespace weft
