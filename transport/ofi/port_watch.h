// Looks now and then whether an RDMA port is up, for the links over it. Nobody else tells that its
// cable was cut: a card gives connections up when its retries are over, seconds later and only
// where something is on its way, Soft-RoCE never does, and libfabric has no event for a port. Their
// control connections may go by another cable, and stay.
//
//   resting    there is no link. -> looking: Begin()
//   looking    every kLookNs the kernel is asked, from a timer. -> resting: `told` says that no
//              link is left
//
// A look is one read of a file of sysfs that stays open, some microseconds; nothing is looked at on
// the way of a call. A port that goes down and comes back between two looks has not been away.
//
// Threads: the engine's.
// Lifetime: clock and timers outlive it. `told` may end links, and does not destroy this.
// Errors: a state that cannot be read (no sysfs) says nothing against the port.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/timer_wheel.h"
#include "transport/descriptor.h"

namespace weft {

class PortWatch final : private Timer {
 public:
  // Connections whose host is gone are given up after peer_timeout_ns, 3 s: this is to be sooner.
  static constexpr uint64_t kLookNs = kNsPerSec;

  // Of the port `port`, "mlx5_0:1", as the kernel tells of it below `sysfs` ("/sys"). `told` hears
  // what each look from the timer has found; false: no link is left. `timers` null: it looks when a
  // link begins, and not again.
  PortWatch(const std::string& sysfs, const std::string& port, const Clock* clock,
            TimerWheel* timers, Function<bool(const absl::Status& found)> told);

  // A link begins. UNAVAILABLE: it would not come up, for the port is not ACTIVE; the text says
  // which it is, and what to do.
  absl::Status Begin();

 private:
  void OnTimer() override;
  absl::Status Look() const;
  void LookLater();

  // Constant after construction.
  const std::string port_;
  const std::string folder_;  // of the port, in sysfs
  const Descriptor state_;    // the file; not valid: it could not be opened
  const Clock* const clock_;  // null: as timers_
  TimerWheel* const timers_;  // null: nothing is looked at by itself
  Function<bool(const absl::Status&)> told_;
};

}  // namespace weft
