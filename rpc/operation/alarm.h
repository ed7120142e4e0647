// Calls back at a time, on an engine's thread: for what a program does again and again, or gives up
// after a while. Coroutines have Sleep() (weft/coroutine.h).
//
//   weft::Alarm beat(server.engine());     // one with a thread, or that somebody drives
//   void Beat() {
//     SendHeartbeat();
//     beat.Set(50'000, [this] { Beat(); });   // from inside as well
//   }
//
// Threads: any, one at a time; callbacks run on the engine's, and may call all of it meanwhile. On
//   another thread each function waits until the engine has had a turn: so Cancel() waits for the
//   callback that runs, and forgets what that has set.
// Lifetime: the engine outlives it. Destroying it is Cancel(); a callback may do that, too.
// Errors: none.
// Invariants: a callback runs at most once for each Set(), never inside it, and not once Cancel()
//   has returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/function.h"

namespace weft {

class Engine;

class Alarm {
 public:
  explicit Alarm(Engine& engine);
  ~Alarm();
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  // Calls `then` once, when `delay_us` have passed on the engine's clock: not earlier, and later by
  // up to 66 us and what the engine does meanwhile. (An engine that nobody drives calls nobody.)
  // What was set before is forgotten.
  void Set(uint64_t delay_us, Function<void()> then);

  // True: what was set had not run, and will not.
  bool Cancel();

 private:
  class State;
  // Of a State: inside, so that an alarm costs no allocation (a coroutine's frame holds one).
  static constexpr size_t kStateBytes = 144;

  State& state();

  alignas(std::max_align_t) std::byte state_[kStateBytes];
};

}  // namespace weft
