// What a call has at the server beside request, reply and payloads, if it has any of it: metadata
// both ways, and a handler that wants to be told when its call is cancelled.
//
// Made for the first call of a ServerCall that has use for it, and kept for the next.
//
// Threads: OnCancel() on the handler's; Forget() on the thread that finishes the call; Run() and
// the
//   rest on the engine's. `received` and `reply` are the handler's while it has the call.
// Lifetime: a member of its ServerCall.
// Invariants: a callback runs at most once, and does not begin after Forget() has returned.
#pragma once

#include <cstdint>
#include <mutex>

#include "core/function.h"
#include "core/timer_wheel.h"
#include "rpc/wire/metadata.h"

namespace weft {

class ServerCall;

class ServerExtras final : private Timer {
 public:
  explicit ServerExtras(ServerCall* call) : call_(*call) {}

  // --- the handler's ----------------------------------------------------------------------------

  Metadata received;
  Metadata reply;

  // False: the call is cancelled already, and `callback` is as it was. Else Run() calls it.
  bool OnCancel(Function<void()>& callback);

  // --- the engine's -----------------------------------------------------------------------------

  // The call is cancelled, and says so: calls the callback, if there is one.
  void Run();
  // The call is cancelled at its deadline, whatever its client does.
  void WatchDeadline(TimerWheel& timers, uint64_t deadline_ns) {
    timers.Schedule(this, deadline_ns);
  }
  // REQUIRES: on the engine's thread if the deadline is watched.
  void StopWatching(TimerWheel& timers) {
    if (armed()) timers.Cancel(this);
  }

  // --- either's ---------------------------------------------------------------------------------

  // The callback is wanted no more.
  void Forget();

  uint32_t charged_bytes = 0;  // the engine's: of these, in ServerStats::running_bytes

 private:
  void OnTimer() override;

  ServerCall& call_;
  std::mutex mutex_;  // of the next
  Function<void()> on_cancel_;
};

}  // namespace weft
