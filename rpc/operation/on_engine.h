// Runs something on an engine's thread from wherever the caller is, and waits for it. For setup,
// teardown and diagnosis; calls have their own, shorter way.
//
// In a child of fork(), with an engine of the parent's, all of these return at once, and nothing
// runs: what they had taken is dropped.
//
// Threads: any.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/function.h"
#include "core/timer_wheel.h"
#include "transport/engine.h"
#include "weft/status.h"

namespace weft {

// Hands `task` over, however full the inbox is. Waits for room, which the engine makes with each
// turn.
// REQUIRES: not on the engine's thread.
inline void PostSurely(EngineCore& engine, Function<void()> task) {
  // NOLINTNEXTLINE(bugprone-use-after-move): what was refused is as it was
  while (!engine.Post(std::move(task)) && !engine.forked()) EngineCore::AwaitRoom();
}

// The same where this thread may be the one that has to make room: then it drives.
// REQUIRES: not in a turn of this engine.
inline void PostOrDrive(EngineCore& engine, Function<void()> task) {
  // NOLINTNEXTLINE(bugprone-use-after-move): what was refused is as it was
  while (!engine.Post(std::move(task)) && !engine.forked()) {
    if (engine.Enter()) {
      engine.Poll();
      engine.Leave();
    } else {
      EngineCore::AwaitRoom();
    }
  }
}

// `task` runs after everything that this thread has posted before; inside a turn at once. False: it
// has not, for the engine is the parent's.
template <class F>
bool RunOnEngine(EngineCore& engine, F&& task) {
  if (engine.InTurn()) {
    task();
    return true;
  }
  Waiter waiter;
  const auto run = [&] {
    task();
    engine.Finish(waiter);
  };
  PostOrDrive(engine, run);
  return engine.Wait(waiter);
}

// `timer` fires when so much time has passed on the engine's clock, as the wheel tells it; a time
// that is too far never comes. On the engine's thread.
inline void ScheduleIn(EngineCore& engine, Timer& timer, uint64_t delay_us) {
  const uint64_t now_ns = engine.clock().NowNs();
  const uint64_t most_us = (kNever - 1 - now_ns) / kNsPerUs;
  engine.timers().Schedule(&timer, now_ns + std::min(delay_us, most_us) * kNsPerUs);
}

// What asynchronous operations end with that could not be handed over.
inline absl::Status NotPostedError(const EngineCore& engine) {
  return WithDelivery(engine.forked()
                          ? EngineCore::ForkedError()
                          : absl::ResourceExhaustedError("the engine's inbox is full (not sent)"),
                      Delivery::kNotSent);
}

// `start` starts something on the engine that will finish `waiter`, for which this thread alone
// waits; returns when it has. If this thread may drive the engine, it does. `behind`: only after
// what has been posted before.
// Errors: `start` has not run.
// REQUIRES: `start` touches nothing of its caller's once the waiter may be finished: on another
// thread than the engine's the caller goes on at that moment, and with it what `start` captured.
template <class F>
absl::Status StartAndWait(EngineCore& engine, Waiter& waiter, bool behind, F&& start) {
  if (engine.InTurn()) {
    return WithDelivery(
        absl::FailedPreconditionError("a blocking operation inside a callback of its own engine "
                                      "would wait for itself: use the form with a callback"),
        Delivery::kNotSent);
  }
  if (!behind && engine.Enter()) {
    start();
    engine.Drive(waiter);
    engine.Leave();
    return absl::OkStatus();
  }
  if (!engine.Post([&] { start(); })) return NotPostedError(engine);
  engine.Wait(waiter);
  return absl::OkStatus();
}

}  // namespace weft
