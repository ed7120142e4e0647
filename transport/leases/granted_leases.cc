#include "transport/leases/granted_leases.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace weft {
namespace {

Access AccessOf(Rights rights) {
  const bool read = (rights & kMayRead) != 0;
  const bool write = (rights & kMayWrite) != 0;
  if (read && write) return Access::kRemoteReadWrite;
  return write ? Access::kRemoteWrite : Access::kRemoteRead;
}

// Of a handle, or a lease: never 0, for what ends at this very moment may as well end in a
// nanosecond.
uint64_t TimeLeft(uint64_t until_ns, uint64_t now_ns) {
  return until_ns > now_ns ? until_ns - now_ns : 1;
}

}  // namespace

GrantedLeases::GrantedLeases(Host* host, ExportTable* exports)
    : host_(host),
      exports_(exports),
      leases_(kMaxLeases, [this](uint32_t) { return GrantedLease(this); }) {}

// Ours: the end of the connection has ended them
GrantedLeases::~GrantedLeases() { WEFT_CHECK(leases_.empty()); }

// --- what the peer asks for ---------------------------------------------------------------------

absl::Status GrantedLeases::OnResolve(const GrantResolve& asked) {
  TableExport* const exported = Find(asked.handle);
  if (exported == nullptr) return RefuseBadHandle(asked.ask);
  const ExportOptions& options = exported->options();
  if (asked.layout != options.layout) {
    host_->SendGrant(GrantRefused{asked.ask, absl::StatusCode::kFailedPrecondition, options.layout,
                                  options.layout_name});
    return absl::OkStatus();
  }
  return Grant(asked, exported);
}

absl::Status GrantedLeases::Grant(const GrantResolve& asked, TableExport* exported) {
  SlabHandle id;
  if (leases_.full() || !exports_->CountLease(host_->peer_client())) {
    Refuse(asked.ask, absl::StatusCode::kResourceExhausted);
    return absl::OkStatus();
  }
  const RegionHandle::Claim claim = asked.handle.claim();
  absl::StatusOr<std::unique_ptr<Region>> region = host_->RegisterLease(
      exported->memory().subspan(claim.offset, claim.length), AccessOf(claim.rights));
  if (!region.ok()) {
    exports_->UncountLease(host_->peer_client());
    Refuse(asked.ask, absl::StatusCode::kResourceExhausted);
    return absl::OkStatus();
  }
  if ((claim.rights & kMayUseAtomics) != 0) host_->AllowAtomics(region->get());
  const RemoteSpan remote = (*region)->remote();
  const uint64_t now_ns = NowNs();
  const uint64_t lease_ns = std::min(
      {asked.lease_ns, exported->options().max_lease_ns, TimeLeft(claim.expires_ns, now_ns)});
  leases_.Allocate(&id)->Start(id, exported, *std::move(region), now_ns + lease_ns,
                               claim.expires_ns);
  host_->SendGrant(GrantGranted{asked.ask, id.packed(), lease_ns, remote, claim.rights});
  return absl::OkStatus();
}

absl::Status GrantedLeases::OnDerive(const GrantDerive& asked) {
  TableExport* const exported = Find(asked.handle);
  if (exported == nullptr) return RefuseBadHandle(asked.ask);
  RegionHandle::Claim claim = asked.handle.claim();
  // Asking for more than one has is not better than inventing it.
  if (asked.offset > claim.length || asked.length > claim.length - asked.offset ||
      (asked.rights & ~claim.rights) != 0) {
    return RefuseBadHandle(asked.ask);
  }
  claim.offset += asked.offset;
  claim.length = asked.length;
  claim.rights = asked.rights;
  const uint64_t now_ns = NowNs();
  if (asked.lifetime_ns != 0 && asked.lifetime_ns < TimeLeft(claim.expires_ns, now_ns)) {
    claim.expires_ns = now_ns + asked.lifetime_ns;
  }
  host_->SendGrant(GrantDerived{asked.ask, exports_->code(*exported).Mint(claim)});
  return absl::OkStatus();
}

void GrantedLeases::OnRenew(const GrantRenew& asked) {
  GrantedLease* const lease = leases_.Get(SlabHandle::FromPacked(asked.lease));
  if (lease == nullptr || !lease->open()) return;  // the holder has been told, or will not ask
  const uint64_t now_ns = NowNs();
  const uint64_t lease_ns =
      std::min({asked.lease_ns, lease->LongestNs(), TimeLeft(lease->handle_expires_ns(), now_ns)});
  host_->SendGrant(GrantRenewed{asked.lease, TimeLeft(lease->Renew(now_ns + lease_ns), now_ns)});
}

void GrantedLeases::OnReturn(const GrantReturn& given_back) {
  GrantedLease* const lease = leases_.Get(SlabHandle::FromPacked(given_back.lease));
  if (lease != nullptr) lease->Close();
}

TableExport* GrantedLeases::Find(const RegionHandle& handle) {
  return exports_->Find(handle, host_->peer_tenant());
}

absl::Status GrantedLeases::RefuseBadHandle(uint64_t ask) {
  exports_->CountBadHandle();
  Refuse(ask, absl::StatusCode::kPermissionDenied);
  if (++bad_handles_ < kMaxBadHandles) return absl::OkStatus();
  return absl::DataLossError(
      StrCat("the peer has shown ", kMaxBadHandles, " handles that were not good"));
}

void GrantedLeases::Refuse(uint64_t ask, absl::StatusCode code) {
  host_->SendGrant(GrantRefused{ask, code, 0, {}});
}

void GrantedLeases::End() {
  leases_.ForEach([](GrantedLease& lease) { lease.CloseWithoutLink(); });
}

// --- one lease ----------------------------------------------------------------------------------

void GrantedLeases::GrantedLease::Start(SlabHandle handle, TableExport* exported,
                                        std::unique_ptr<Region> region, uint64_t until_ns,
                                        uint64_t handle_expires_ns) {
  state_ = State::kOpen;
  handle_ = handle;
  export_ = exported;
  region_ = std::move(region);
  until_ns_ = until_ns;
  handle_expires_ns_ = handle_expires_ns;
  export_->AddLease(this);
  owner_->exports_->timers().Schedule(this, until_ns);
}

uint64_t GrantedLeases::GrantedLease::Renew(uint64_t until_ns) {
  // Not beyond its handle; and what brings nothing does not put off an end that is due.
  until_ns = std::min(until_ns, handle_expires_ns_);
  if (until_ns > until_ns_) {
    until_ns_ = until_ns;
    owner_->exports_->timers().Schedule(this, until_ns_);
  }
  return until_ns_;
}

void GrantedLeases::GrantedLease::Revoke(uint64_t grace_ns) {
  if (state_ != State::kOpen) return;
  state_ = State::kRevoked;
  owner_->host_->SendGrant(GrantEnded{handle_.packed(), absl::StatusCode::kAborted, grace_ns});
}

void GrantedLeases::GrantedLease::OnTimer() {
  if (state_ == State::kOpen) {
    owner_->host_->SendGrant(
        GrantEnded{handle_.packed(), absl::StatusCode::kDeadlineExceeded, /*grace_ns=*/0});
  }
  Close();
}

void GrantedLeases::GrantedLease::Close() {
  if (state_ == State::kClosing) return;
  Stop();
  if (owner_->host_->ReclaimLease(std::move(region_), this)) Finish();
}

void GrantedLeases::GrantedLease::EndHolder() {
  owner_->host_->EndConnection("its memory was revoked, and this peer did not answer");
}

void GrantedLeases::GrantedLease::CloseWithoutLink() {
  if (state_ == State::kClosing) return;  // the connection tells when it is reclaimed
  Stop();
  region_.reset();
  Finish();
}

void GrantedLeases::GrantedLease::Stop() {
  state_ = State::kClosing;
  owner_->exports_->timers().Cancel(this);
  owner_->host_->ForbidAtomics(region_.get());
}

void GrantedLeases::GrantedLease::OnComplete(const absl::Status&) { Finish(); }

void GrantedLeases::GrantedLease::Finish() {
  TableExport* const exported = std::exchange(export_, nullptr);
  owner_->exports_->UncountLease(owner_->host_->peer_client());
  owner_->leases_.Free(handle_);
  // Last, for it tells the export's user, who may do anything: that the slot is free already does
  // no harm, for nobody else is told to use it meanwhile.
  exported->RemoveLease(this);
}

}  // namespace weft
