// A Lease is direct access to a peer's memory for a time: what a RegionHandle is exchanged for.
//
// The lease holder asks over its connection (RemoteAccess::Resolve()); the lease owner looks at the
// handle, opens a registration for this one lease, and gives its key; where the provider counts
// from addresses (verbs), the address too. Both travel over the control connection only. When the
// time is over, when the owner revokes, or when the holder gives it back, the owner closes that
// registration.
//
//   state        set by                                        left for
//   kIdle        construction, or the end                      kAsked
//   kAsked       RemoteAccess::Resolve()                       kHeld: OnGranted(); kIdle: OnEnded()
//   kHeld        the owner's yes                               kIdle: OnEnded()
//
// The lease holder stops in time: usable_until_ns() lies before the owner's closing, on this side's
// clock: it counts from the question, and takes a tenth off, at most 1 s. An operation that comes
// too late is refused by the provider: PERMISSION_DENIED on shm, sim and tcp; on verbs and ofi_tcp
// that ends the connection. Nobody has to come near it: rpc/memory/remote_memory.h renews in time,
// for what is under way as well, and refuses what is late.
//
// A renewal lets the registration that the lease has last longer, under the same key: what was
// posted before goes on.
//
// Threads: engine thread. Lifetime: the caller's; untouched from Resolve() until OnEnded(), which
//   comes before the connection's OnClosed() at the latest.
// Errors: OnEnded() tells why:
//   PERMISSION_DENIED    the owner does not know the handle, whatever is wrong with it (forged,
//                        revoked, expired, out of bounds, another tenant's). The eighth such answer
//                        on one connection ends it.
//   FAILED_PRECONDITION  the handle is good and the layouts differ: the text has both.
//   INVALID_ARGUMENT     a length of time out of bounds; no handle at all.
//   RESOURCE_EXHAUSTED   the owner's limit of leases (those whose memory is still pinned included)
//                        or of registrations.
//   UNIMPLEMENTED        the peer's release knows no leases.
//   ABORTED              the owner has revoked it.
//   DEADLINE_EXCEEDED    its time is over.
//   CANCELLED            RemoteAccess::Return(), or this side closed the connection.
//   UNAVAILABLE          the connection is gone.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "transport/region.h"
#include "transport/region_handle.h"

namespace weft {

// How long a lease may be, in one go. Shorter would be spent on renewals; longer would keep an
// owner that can't reach a lease holder from reusing its memory.
inline constexpr uint64_t kMinLeaseNs = 1'000'000'000;
inline constexpr uint64_t kMaxLeaseNs = 60'000'000'000;

// Leases that one connection may hold of its peer: bounds what a peer can make the owner register.
inline constexpr uint32_t kMaxLeases = 256;

// Bad handles, after which the owner ends the session.
inline constexpr uint32_t kMaxBadHandles = 8;

class Lease {
 public:
  enum class State : uint8_t { kIdle = 1, kAsked = 2, kHeld = 3 };

  State state() const { return state_; }
  // kHeld: what RemoteAccess::Post() takes as Transfer::remote; its length is the handle's.
  const RemoteSpan& remote() const { return remote_; }
  Rights rights() const { return rights_; }
  // On the engine's clock. Post nothing after it.
  uint64_t usable_until_ns() const { return usable_until_ns_; }

 protected:
  Lease() = default;
  ~Lease() = default;
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // It is held; again after each renewal, with a later usable_until_ns().
  virtual void OnGranted() = 0;
  // It is over, once for each Resolve(); Resolve() may be called here.
  virtual void OnEnded(const absl::Status& why) = 0;

 private:
  friend class HeldLeases;

  State state_ = State::kIdle;
  Rights rights_ = 0;
  uint64_t id_ = 0;  // kAsked: of the question; kHeld: the owner's number
  RemoteSpan remote_;
  uint64_t usable_until_ns_ = 0;
};

// Asks a peer to make a narrower handle of one of its own: RemoteAccess::Derive().
class Derivation {
 public:
  // Exactly once for each accepted request. Errors as a Lease's.
  virtual void OnDerived(const absl::Status& status, const RegionHandle& handle) = 0;

 protected:
  ~Derivation() = default;
};

}  // namespace weft
