// Keeps a fixed number of tasks under way: each of so many lanes starts its next task when its last
// one has ended, as that many clients would who each wait for their reply. One thread does it all.
//
// Threads:    one, which drives the engine inside Run(): the engine is caller-driven, and the
//             calls' callbacks come to this thread.
// Lifetime:   the engine outlives the loop; every started task ends before Run() returns.
#pragma once

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "transport/engine.h"

namespace kv::client {

class ClosedLoop {
 public:
  // Starts the next task in `lane` (0 to lanes - 1), which ends with Done(lane), later. False:
  // there is no further task.
  using StartTask = std::function<bool(uint32_t lane)>;

  ClosedLoop(weft::Engine& engine, uint32_t lanes, StartTask start);
  ClosedLoop(const ClosedLoop&) = delete;
  ClosedLoop& operator=(const ClosedLoop&) = delete;

  // Starts the first tasks. Run() does it, and waits.
  void Start();
  // No task is under way.
  bool ended() const { return active_ == 0; }

  // Until there is no further task and all have ended. Looks at `go_on` about every 50 ms; once it
  // returns false no further task is started.
  void Run(absl::FunctionRef<bool()> go_on);

  // From the callback that ends the lane's task.
  void Done(uint32_t lane);

  // No further task is started.
  void Stop() { stopped_ = true; }

 private:
  weft::EngineCore& engine_;
  const uint32_t lanes_;
  const StartTask start_;
  uint32_t active_ = 0;  // lanes with a task under way
  bool stopped_ = false;
  weft::Waiter all_ended_;
};

}  // namespace kv::client
