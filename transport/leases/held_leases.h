// The holder's side of leases, for one connection: asks, keeps the answers, and stops in time.
//
// Who believes whom: an owner can say no, or something false about its own memory; it cannot make
// this side use a lease that was not asked for, or longer than it asked for.
//
// When a lease ends here: at the time of the question + what was given - a margin. The owner counts
// from a later time, that of its answer, so however long the question and the answer travelled,
// this side stops first. The margin (a tenth, at most 1 s) is for what was posted just before the
// end: it has to be carried out before the owner closes; and for clocks that do not run at the same
// speed (60 s on two cheap oscillators: 12 ms).
//
// Threads: one engine's. Lifetime: a member of its connection; End() before it is destroyed.
// Errors: as Lease says. False from On...(): the peer has broken the rules.
// Invariants: asks outstanding + leases held <= 2 * kMaxLeases; every lease that is not kIdle is in
//   exactly one of both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "transport/lease.h"
#include "transport/leases/grant_message.h"

namespace weft {

class HeldLeases final : private Timer {
 public:
  // The connection.
  class Host {
   public:
    virtual void SendGrant(const GrantMessage& message) = 0;
    // EndOverdue() soon, where users may be told something.
    virtual void OnLeasesOverdue() = 0;

   protected:
    ~Host() = default;
  };

  HeldLeases(Host* host, const Clock* clock, TimerWheel* timers);
  ~HeldLeases() override;

  // Of Connection, whose state the caller has checked.
  absl::Status Resolve(const RegionHandle& handle, uint64_t layout, uint64_t lease_ns,
                       Lease* lease);
  absl::Status Renew(uint64_t lease_ns, Lease* lease);
  void Return(Lease* lease);
  absl::Status Derive(const RegionHandle& handle, uint64_t offset, uint64_t length, Rights rights,
                      uint64_t lifetime_ns, Derivation* derivation);

  [[nodiscard]] bool OnGranted(const GrantGranted& granted);
  [[nodiscard]] bool OnRefused(const GrantRefused& refused);
  [[nodiscard]] bool OnRenewed(const GrantRenewed& renewed);
  [[nodiscard]] bool OnDerived(const GrantDerived& derived);
  // Of a lease that is not held any more: the two have crossed.
  void OnEnded(const GrantEnded& ended);

  void EndOverdue();
  // Everything ends with `why`.
  void End(const absl::Status& why);

 private:
  // One question. Without a lease and a derivation: nobody waits for the answer any more.
  struct Ask {
    Lease* lease = nullptr;
    Derivation* derivation = nullptr;
    bool resolves = false;
    RegionHandle handle;
    uint64_t layout = 0;
    uint64_t asked_ns = 0;
    uint64_t lease_ns = 0;
  };
  struct Held {
    Lease* lease = nullptr;       // null: this place is free
    uint64_t renew_asked_ns = 0;  // 0: no renewal is under way
    uint64_t renew_lease_ns = 0;
  };

  // The question that was answered, taken out; false: there is none of this kind.
  bool TakeAsk(uint64_t id, bool resolves, Ask* ask);
  // Null: not held.
  Held* Find(uint64_t lease_id);
  Held* HeldOf(const Lease& lease) { return Find(lease.id_); }
  static uint64_t UsableUntil(uint64_t asked_ns, uint64_t lease_ns);
  void Watch(uint64_t until_ns);
  void OnTimer() override { host_->OnLeasesOverdue(); }
  void EndHeld(Held& held, const absl::Status& why);
  static void EndLease(Lease* lease, const absl::Status& why);

  Host* const host_;
  const Clock* const clock_;
  TimerWheel* const timers_;
  Slab<Ask> asks_;
  uint32_t resolving_ = 0;  // asks that resolve
  uint32_t held_count_ = 0;
  std::array<Held, kMaxLeases> held_;  // [slot of the owner's number]
};

}  // namespace weft
