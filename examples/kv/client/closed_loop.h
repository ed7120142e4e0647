// Keeps a fixed number of tasks under way: each of so many lanes starts its next task when its last
// one has ended, as that many clients would who each wait for their reply. One thread does it all.
//
// A task that ends later is followed by the lane's next one from inside its callback. One that ends
// while it is started is followed by another lane's, and so the lanes take turns.
//
// Threads:    one, which drives the engine inside Run(): the engine is caller-driven, and the
//             calls' callbacks come to this thread.
// Lifetime:   the engine outlives the loop; every started task ends before Run() returns.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "weft/engine.h"

namespace kv::client {

class ClosedLoop {
 public:
  // Starts the next task in `lane` (0 to lanes - 1), which ends with Done(lane), inside or later.
  // False: there is no further task.
  using StartTask = std::function<bool(uint32_t lane)>;

  ClosedLoop(weft::Engine& engine, uint32_t lanes, StartTask start);
  ClosedLoop(const ClosedLoop&) = delete;
  ClosedLoop& operator=(const ClosedLoop&) = delete;

  // Starts tasks in lanes that have none, until each has one or kAtOnce have ended inside. Run()
  // does it, and waits.
  void StartDue();
  // No task is under way, and none is due.
  bool ended() const { return active_ == 0; }

  // Until there is no further task and all have ended. Looks at `go_on` about every 50 ms; once it
  // returns false no further task is started.
  void Run(absl::FunctionRef<bool()> go_on);

  // When the lane's task has ended: from its callback, or inside its start.
  void Done(uint32_t lane);

  // No further task is started.
  void Stop() { stopped_ = true; }

 private:
  // Tasks that end inside their start, between two turns of the engine: what else is on it (replies
  // to calls, a lease's renewal) waits for so many, some 10 us; and a turn that finds nothing to
  // do, 0.1 us, costs each of them little.
  static constexpr uint32_t kAtOnce = 16;
  static constexpr uint32_t kNoLane = ~uint32_t{0};

  // True: it has ended inside, and the lane is due.
  bool StartNext(uint32_t lane);
  void PushDue(uint32_t lane);
  uint32_t PopDue();

  weft::Engine& engine_;
  const StartTask start_;
  std::vector<uint32_t> due_;  // lanes without a task: due_count_ of them from first_due_ on, round
  uint32_t first_due_ = 0;
  uint32_t due_count_ = 0;
  uint32_t active_;              // lanes that are due or have a task
  uint32_t starting_ = kNoLane;  // whose task is being started, and has not ended
  bool stopped_ = false;
};

}  // namespace kv::client
