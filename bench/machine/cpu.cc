#include "bench/machine/cpu.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <thread>

#include "absl/strings/str_join.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

constexpr size_t kRuns = 9;
constexpr uint32_t kRoundTrips = 20'000;  // about 2 ms
// Whoever shares these processors with other work does not wait for all runs: that it is unfit is
// known by then.
constexpr uint64_t kLongEnoughNs = 50 * kNsPerMs;

struct alignas(kCacheLineBytes) Line {
  std::atomic<uint32_t> turn{0};
};

void Answer(Line& line) {
  for (uint32_t i = 0; i < kRoundTrips; ++i) {
    while (line.turn.load(std::memory_order_acquire) != 2 * i + 1) {
    }
    line.turn.store(2 * i + 2, std::memory_order_release);
  }
}

void Ask(Line& line) {
  for (uint32_t i = 0; i < kRoundTrips; ++i) {
    line.turn.store(2 * i + 1, std::memory_order_release);
    while (line.turn.load(std::memory_order_acquire) != 2 * i + 2) {
    }
  }
}

// Both threads are there before the clock starts. Returns 0 when one could not be pinned.
double OneRunNs(int first, int second) {
  Line line;
  std::atomic<int> pinned{0};
  std::atomic<bool> failed{false};
  const auto meet = [&](int cpu) {
    if (!PinThisThread(cpu).ok()) failed = true;
    ++pinned;
    while (pinned.load() < 2) {
    }
    return !failed.load();
  };
  std::thread answering([&] {
    if (meet(second)) Answer(line);
  });
  uint64_t elapsed_ns = 0;
  std::thread asking([&] {
    if (!meet(first)) return;
    const uint64_t start_ns = Clock::Real().NowNs();
    Ask(line);
    elapsed_ns = Clock::Real().NowNs() - start_ns;
  });
  answering.join();
  asking.join();
  return static_cast<double>(elapsed_ns) / (2.0 * kRoundTrips);
}

}  // namespace

std::vector<int> AllowedCpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  std::vector<int> cpus;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
  }
  return cpus;
}

absl::Status PinThisThread(int cpu) { return LimitThisThread({cpu}); }

absl::Status LimitThisThread(const std::vector<int>& cpus) {
  cpu_set_t only;
  CPU_ZERO(&only);
  for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &only);
  const int error = pthread_setaffinity_np(pthread_self(), sizeof(only), &only);
  if (error == 0) return absl::OkStatus();
  return StatusFromErrno(error,
                         StrCat("running on processor ", absl::StrJoin(cpus, " or "), " only"));
}

double CoreToCoreNs(int first, int second) {
  if (first == second) return 0;
  const uint64_t start_ns = Clock::Real().NowNs();
  std::vector<double> runs;
  while (runs.size() < kRuns && Clock::Real().NowNs() - start_ns < kLongEnoughNs) {
    runs.push_back(OneRunNs(first, second));
  }
  const auto middle = runs.begin() + static_cast<int64_t>(runs.size() / 2);
  std::nth_element(runs.begin(), middle, runs.end());
  return *middle;
}

uint64_t StolenTicks() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  // user nice system idle iowait irq softirq steal
  std::array<uint64_t, 8> ticks = {};
  stat >> cpu;
  for (uint64_t& value : ticks) stat >> value;
  return stat ? ticks[7] : 0;
}

}  // namespace weft::bench
