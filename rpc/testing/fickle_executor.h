// An executor for random faults.
#pragma once

#include "core/random.h"
#include "rpc/operation/executor.h"

namespace weft::test {

// Refuses some tasks, and runs the others where they are.
class FickleExecutor final : public Executor {
 public:
  // `refused`: the part of the tasks, 0 to 1.
  FickleExecutor(Random random, double refused) : random_(random), refused_(refused) {}
  bool Run(Function<void()> task) override {
    if (random_.Chance(refused_)) return false;
    task();
    return true;
  }

 private:
  Random random_;
  const double refused_;
};

}  // namespace weft::test
