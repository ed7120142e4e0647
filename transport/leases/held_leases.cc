#include "transport/leases/held_leases.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/check.h"
#include "core/strings.h"

namespace weft {
namespace {

constexpr uint64_t kLongestMarginNs = kNsPerSec;

absl::Status CheckLeaseNs(uint64_t lease_ns) {
  if (lease_ns >= kMinLeaseNs && lease_ns <= kMaxLeaseNs) return absl::OkStatus();
  return absl::InvalidArgumentError(
      StrCat("a lease of ", lease_ns, " ns; ", kMinLeaseNs, " to ", kMaxLeaseNs, " are possible"));
}

absl::Status CheckHandle(const RegionHandle& handle) {
  if (!(handle == RegionHandle())) return absl::OkStatus();
  return absl::InvalidArgumentError("no handle: all of its bytes are 0");
}

absl::Status TooMany() {
  return absl::ResourceExhaustedError(StrCat("all ", kMaxLeases,
                                             " leases of this connection, or questions to its "
                                             "peer, are in use: return some, or wait"));
}

// A name that came from a peer, fit for an error's text.
std::string Shown(const std::string& name) {
  std::string shown = name;
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return shown;
}

absl::Status Refusal(const GrantRefused& refused, uint64_t layout) {
  switch (refused.code) {
    case absl::StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(absl::StrFormat(
          "another layout: the owner has \"%s\", hash %016x, there; this side takes it for hash "
          "%016x: build both sides from the same .proto",
          Shown(refused.layout_name), refused.layout, layout));
    case absl::StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(
          "the owner can register no more memory: its limit of leases, or of its system");
    default:
      return absl::PermissionDeniedError("the owner does not accept this handle");
  }
}

}  // namespace

HeldLeases::HeldLeases(Host* host, const Clock* clock, TimerWheel* timers)
    : host_(host), clock_(clock), timers_(timers), asks_(kMaxLeases) {}

// Ours: the end of the connection has ended them
HeldLeases::~HeldLeases() { WEFT_CHECK(held_count_ == 0 && asks_.empty()); }

// --- the user's calls ---------------------------------------------------------------------------

absl::Status HeldLeases::Resolve(const RegionHandle& handle, uint64_t layout, uint64_t lease_ns,
                                 Lease* lease) {
  WEFT_CHECK(lease->state_ == Lease::State::kIdle);  // User: what its state permits (lease.h)
  if (absl::Status status = CheckLeaseNs(lease_ns); !status.ok()) return status;
  if (absl::Status status = CheckHandle(handle); !status.ok()) return status;
  SlabHandle id;
  if (resolving_ + held_count_ >= kMaxLeases || asks_.full()) return TooMany();
  *asks_.Allocate(&id) = {lease, nullptr, true, handle, layout, clock_->NowNs(), lease_ns};
  ++resolving_;
  lease->state_ = Lease::State::kAsked;
  lease->id_ = id.packed();
  lease->rights_ = handle.rights();
  host_->SendGrant(GrantResolve{id.packed(), lease_ns, layout, handle});
  return absl::OkStatus();
}

absl::Status HeldLeases::Renew(uint64_t lease_ns, Lease* lease) {
  WEFT_CHECK(lease->state_ == Lease::State::kHeld);  // User: what its state permits (lease.h)
  if (absl::Status status = CheckLeaseNs(lease_ns); !status.ok()) return status;
  Held& held = *HeldOf(*lease);
  // Two answers could not be told apart.
  if (held.renew_asked_ns != 0) {
    return absl::FailedPreconditionError("a renewal of this lease is under way");
  }
  held.renew_asked_ns = clock_->NowNs();
  held.renew_lease_ns = lease_ns;
  host_->SendGrant(GrantRenew{lease->id_, lease_ns});
  return absl::OkStatus();
}

void HeldLeases::Return(Lease* lease) {
  WEFT_CHECK(lease->state_ != Lease::State::kIdle);  // User: what its state permits (lease.h)
  const absl::Status why = absl::CancelledError("the lease was returned");
  if (lease->state_ == Lease::State::kAsked) {
    asks_.Get(SlabHandle::FromPacked(lease->id_))->lease = nullptr;
    return EndLease(lease, why);
  }
  host_->SendGrant(GrantReturn{lease->id_});
  EndHeld(*HeldOf(*lease), why);
}

absl::Status HeldLeases::Derive(const RegionHandle& handle, uint64_t offset, uint64_t length,
                                Rights rights, uint64_t lifetime_ns, Derivation* derivation) {
  if (absl::Status status = CheckHandle(handle); !status.ok()) return status;
  if (length == 0 || !AreRights(rights)) {
    return absl::InvalidArgumentError(
        StrCat("a handle to ", length, " bytes with rights ", static_cast<int>(rights),
               "; at least 1 byte and a sum of 1 (read), 2 (write) and, with both of them, 4 "
               "(atomics) is needed"));
  }
  SlabHandle id;
  if (asks_.full()) return TooMany();
  *asks_.Allocate(&id) = {nullptr, derivation, false, handle, 0, clock_->NowNs(), 0};
  host_->SendGrant(GrantDerive{id.packed(), offset, length, lifetime_ns, rights, handle});
  return absl::OkStatus();
}

// --- the owner's answers ------------------------------------------------------------------------

bool HeldLeases::TakeAsk(uint64_t id, bool resolves, Ask* ask) {
  const SlabHandle handle = SlabHandle::FromPacked(id);
  const Ask* const found = asks_.Get(handle);
  if (found == nullptr || found->resolves != resolves) return false;
  *ask = *found;
  asks_.Free(handle);
  if (resolves) --resolving_;
  return true;
}

bool HeldLeases::OnGranted(const GrantGranted& granted) {
  Ask ask;
  if (!TakeAsk(granted.ask, /*resolves=*/true, &ask)) return false;
  const uint32_t slot = SlabHandle::FromPacked(granted.lease).slot;
  const bool as_asked = slot < kMaxLeases && held_[slot].lease == nullptr &&
                        granted.lease_ns <= ask.lease_ns && granted.rights == ask.handle.rights() &&
                        granted.remote.length == ask.handle.length();
  if (!as_asked) {
    if (ask.lease != nullptr) {
      EndLease(ask.lease, absl::UnavailableError("the owner granted what was not asked for"));
    }
    return false;
  }
  const uint64_t until_ns = UsableUntil(ask.asked_ns, granted.lease_ns);
  const bool in_time = clock_->NowNs() < until_ns;
  if (ask.lease == nullptr || !in_time) {
    host_->SendGrant(GrantReturn{granted.lease});
    if (ask.lease != nullptr) {
      EndLease(ask.lease, absl::DeadlineExceededError("the owner's answer came too late"));
    }
    return true;
  }
  Lease* const lease = ask.lease;
  held_[slot] = {lease, 0, 0};
  ++held_count_;
  lease->state_ = Lease::State::kHeld;
  lease->id_ = granted.lease;
  lease->remote_ = granted.remote;
  lease->usable_until_ns_ = until_ns;
  Watch(until_ns);
  lease->OnGranted();
  return true;
}

bool HeldLeases::OnRefused(const GrantRefused& refused) {
  Ask ask;
  if (TakeAsk(refused.ask, /*resolves=*/true, &ask)) {
    if (ask.lease != nullptr) EndLease(ask.lease, Refusal(refused, ask.layout));
    return true;
  }
  if (!TakeAsk(refused.ask, /*resolves=*/false, &ask)) return false;
  ask.derivation->OnDerived(Refusal(refused, 0), RegionHandle());
  return true;
}

bool HeldLeases::OnRenewed(const GrantRenewed& renewed) {
  Held* const held = Find(renewed.lease);
  if (held == nullptr) {
    // Its time was over here before the answer came. (Or it was returned: then once more is one too
    // many, and does no harm.)
    host_->SendGrant(GrantReturn{renewed.lease});
    return true;
  }
  const uint64_t asked_ns = std::exchange(held->renew_asked_ns, 0);
  if (asked_ns == 0) return false;
  Lease* const lease = held->lease;
  lease->usable_until_ns_ =
      std::max(lease->usable_until_ns_, UsableUntil(asked_ns, renewed.lease_ns));
  Watch(lease->usable_until_ns_);
  lease->OnGranted();
  return true;
}

bool HeldLeases::OnDerived(const GrantDerived& derived) {
  Ask ask;
  if (!TakeAsk(derived.ask, /*resolves=*/false, &ask)) return false;
  ask.derivation->OnDerived(absl::OkStatus(), derived.handle);
  return true;
}

void HeldLeases::OnEnded(const GrantEnded& ended) {
  Held* const held = Find(ended.lease);
  if (held == nullptr) return;
  EndHeld(*held, ended.code == absl::StatusCode::kAborted
                     ? absl::AbortedError("the owner has revoked the lease")
                     : absl::DeadlineExceededError("the lease's time is over"));
}

// --- ends ---------------------------------------------------------------------------------------

HeldLeases::Held* HeldLeases::Find(uint64_t lease_id) {
  const uint32_t slot = SlabHandle::FromPacked(lease_id).slot;
  if (slot >= kMaxLeases || held_[slot].lease == nullptr) return nullptr;
  return held_[slot].lease->id_ == lease_id ? &held_[slot] : nullptr;
}

uint64_t HeldLeases::UsableUntil(uint64_t asked_ns, uint64_t lease_ns) {
  return asked_ns + lease_ns - std::min(lease_ns / 10, kLongestMarginNs);
}

void HeldLeases::Watch(uint64_t until_ns) {
  if (!armed() || until_ns < deadline_ns()) timers_->Schedule(this, until_ns);
}

void HeldLeases::EndOverdue() {
  const uint64_t now_ns = clock_->NowNs();
  uint64_t next_ns = kNever;
  for (Held& held : held_) {
    if (held.lease == nullptr) continue;
    const uint64_t until_ns = held.lease->usable_until_ns_;
    if (until_ns <= now_ns) {
      EndHeld(held, absl::DeadlineExceededError("the lease's time is over"));
    } else {
      next_ns = std::min(next_ns, until_ns);
    }
  }
  if (next_ns != kNever) Watch(next_ns);
}

void HeldLeases::End(const absl::Status& why) {
  timers_->Cancel(this);
  for (Held& held : held_) {
    if (held.lease != nullptr) EndHeld(held, why);
  }
  asks_.ForEach([this, &why](SlabHandle id, Ask& asked) {
    const Ask ask = asked;
    asks_.Free(id);
    if (ask.lease != nullptr) EndLease(ask.lease, why);
    if (ask.derivation != nullptr) ask.derivation->OnDerived(why, RegionHandle());
  });
  resolving_ = 0;
}

void HeldLeases::EndHeld(Held& held, const absl::Status& why) {
  --held_count_;
  EndLease(std::exchange(held, {}).lease, why);
}

void HeldLeases::EndLease(Lease* lease, const absl::Status& why) {
  lease->state_ = Lease::State::kIdle;
  lease->id_ = 0;
  lease->OnEnded(why);
}

}  // namespace weft
