// The end of something on an engine, for the thread that waits for it: the base of calls and
// operations that block.
//
// Threads: GoOn() on the engine's; the rest on the caller's, before the start and after the wait.
// Lifetime: on the caller's stack; gone as soon as GoOn() has let the caller go on.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "transport/engine.h"

namespace weft {

class BlockedCaller {
 public:
  explicit BlockedCaller(EngineCore& engine) : engine_(engine) {}

  Waiter& waiter() { return waiter_; }
  absl::Status& status() { return status_; }

 protected:
  ~BlockedCaller() = default;

  // The caller goes on: nothing of this may be touched from here on.
  void GoOn(absl::Status status) {
    status_ = std::move(status);
    engine_.Finish(waiter_);
  }

 private:
  EngineCore& engine_;
  Waiter waiter_;
  absl::Status status_;
};

}  // namespace weft
