// Leases of FramedConnection.

#include <utility>
#include <variant>

#include "core/status.h"
#include "transport/framing/connection_leases.h"
#include "transport/framing/framed_steps.h"
#include "transport/leases/grant_message.h"

namespace weft {

// --- what users ask for -------------------------------------------------------------------------

absl::Status FramedConnection::CheckLeases() const {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the connection is not open");
  if (peer_leases_ && leases_.available()) return absl::OkStatus();
  return absl::UnimplementedError("the peer's release of Weft knows no leases");
}

absl::Status FramedConnection::Resolve(const RegionHandle& handle, uint64_t layout,
                                       uint64_t lease_ns, Lease* lease) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Resolve(handle, layout, lease_ns, lease);
}

absl::Status FramedConnection::Renew(uint64_t lease_ns, Lease* lease) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Renew(lease_ns, lease);
}

void FramedConnection::Return(Lease* lease) { leases_.held().Return(lease); }

absl::Status FramedConnection::Derive(const RegionHandle& handle, uint64_t offset, uint64_t length,
                                      Rights rights, uint64_t lifetime_ns, Derivation* derivation) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Derive(handle, offset, length, rights, lifetime_ns, derivation);
}

void FramedConnection::OnGrant(ByteSpan grant) {
  if (state_ != State::kOpen) return;
  if (!peer_leases_) return Malformed("a grant, which was not agreed on");
  const absl::Status status = leases_.OnGrant(grant);
  if (!status.ok()) Break(status);
}

// --- messages -----------------------------------------------------------------------------------

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

// --- what they need of the connection -----------------------------------------------------------

void ConnectionLeases::SendGrant(const GrantMessage& message) {
  if (connection_->state_ != Connection::State::kOpen) return;
  connection_->owner_->SendGrant(*connection_, EncodeGrant(message).bytes());
}

void ConnectionLeases::OnLeasesOverdue() { connection_->Raise(FramedConnection::kLeasesOverdue); }

absl::StatusOr<std::unique_ptr<Region>> ConnectionLeases::RegisterLease(MutableByteSpan memory,
                                                                        Access access) {
  return connection_->links_->Register(memory, access);
}

bool ConnectionLeases::ReclaimLease(std::unique_ptr<Region> region, Operation* op) {
  return connection_->Reclaim(std::move(region), op);
}

uint32_t ConnectionLeases::peer_tenant() const { return connection_->tenant(); }

void ConnectionLeases::EndConnection(std::string_view why) { connection_->Close(why); }

}  // namespace weft
