// The wheel against a std::multimap by deadline, in the two patterns of an engine: a deadline that
// is set for every call and nearly always cancelled, and a poll with nothing due.
#include <cstdint>
#include <map>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/clock.h"
#include "core/random.h"
#include "core/timer_wheel.h"

namespace weft {
namespace {

class NullTimer final : public Timer {
  void OnTimer() override {}
};

// Deadlines of 10 ms to 10 s.
std::vector<uint64_t> Waits() {
  Random random(1);
  std::vector<uint64_t> waits(4096);
  for (uint64_t& ns : waits) ns = random.UniformInRange(10 * kNsPerMs, 10 * kNsPerSec);
  return waits;
}

// state.range(0) timers are armed all the time.
void TimerWheelScheduleCancel(benchmark::State& state) {
  TimerWheel wheel(kNsPerSec);
  std::vector<NullTimer> timers(static_cast<std::size_t>(state.range(0)));
  const std::vector<uint64_t> waits = Waits();
  std::size_t i = 0;
  for (NullTimer& timer : timers) wheel.Schedule(&timer, kNsPerSec + waits[i++ % waits.size()]);
  const Counted counted(state);
  for (auto _ : state) {
    NullTimer& timer = timers[i % timers.size()];
    wheel.Cancel(&timer);
    wheel.Schedule(&timer, kNsPerSec + waits[i++ % waits.size()]);
  }
}
BENCHMARK(TimerWheelScheduleCancel)->Arg(1)->Arg(256)->Arg(16384);

void MultimapScheduleCancel(benchmark::State& state) {
  std::multimap<uint64_t, int> deadlines;
  std::vector<std::multimap<uint64_t, int>::iterator> timers;
  const std::vector<uint64_t> waits = Waits();
  std::size_t i = 0;
  for (int64_t n = 0; n < state.range(0); ++n) {
    timers.push_back(deadlines.emplace(waits[i++ % waits.size()], 0));
  }
  const Counted counted(state);
  for (auto _ : state) {
    auto& timer = timers[i % timers.size()];
    deadlines.erase(timer);
    timer = deadlines.emplace(waits[i++ % waits.size()], 0);
  }
}
BENCHMARK(MultimapScheduleCancel)->Arg(1)->Arg(256)->Arg(16384);

void TimerWheelAdvanceNothingDue(benchmark::State& state) {
  TimerWheel wheel(kNsPerSec);
  NullTimer timer;
  wheel.Schedule(&timer, 1'000'000 * kNsPerSec);
  uint64_t now_ns = kNsPerSec;
  const Counted counted(state);
  for (auto _ : state) benchmark::DoNotOptimize(wheel.Advance(now_ns += 100));
}
BENCHMARK(TimerWheelAdvanceNothingDue);

// Deadlines that do come: scheduled 1 ms to 1 s ahead, fired as time goes on.
void TimerWheelFire(benchmark::State& state) {
  uint64_t now_ns = kNsPerSec;
  TimerWheel wheel(now_ns);
  std::vector<NullTimer> timers(1024);
  Random random(1);
  int64_t fired = 0;
  const Counted counted(state);
  for (auto _ : state) {
    for (NullTimer& timer : timers) {
      if (!timer.armed()) {
        wheel.Schedule(&timer, now_ns + random.UniformInRange(kNsPerMs, kNsPerSec));
      }
    }
    while (wheel.size() > 0) fired += wheel.Advance(now_ns = wheel.NextDeadlineNs());
  }
  state.SetItemsProcessed(fired);
}
BENCHMARK(TimerWheelFire);

}  // namespace
}  // namespace weft
