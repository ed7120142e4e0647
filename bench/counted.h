// Lets a micro-benchmark tell what its loop takes besides time: allocations and locks of each
// iteration, as the counters "allocs" and "locks".
//
//   const Counted counted(state);
//   for (auto _ : state) ...
//
// Threads: the benchmark's. Lifetime: made after the preparations, destroyed with the benchmark.
#pragma once

#include "benchmark/benchmark.h"
#include "core/testing/hot_path_meter.h"

namespace weft {

class Counted {
 public:
  explicit Counted(benchmark::State& state) : state_(state) {}
  ~Counted() {
    const test::HotPathCounts counts = meter_.counts();
    Report("allocs", counts.allocations);
    Report("locks", counts.locks);
  }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  void Report(const char* name, uint64_t count) {
    state_.counters[name] =
        benchmark::Counter(static_cast<double>(count), benchmark::Counter::kAvgIterations);
  }

  benchmark::State& state_;
  const test::HotPathMeter meter_;
};

}  // namespace weft
