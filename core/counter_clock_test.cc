#include "core/counter_clock.h"

#include <time.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

uint64_t KernelNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSec + static_cast<uint64_t>(now.tv_nsec);
}

// The counter is not read before what was loaded until here has come.
void CompleteLoads() {
#if defined(__x86_64__)
  __builtin_ia32_lfence();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

class CounterClockTest : public testing::Test {
 protected:
  void SetUp() override {
    clock_ = CounterClock::Create();
    if (clock_ == nullptr) GTEST_SKIP() << "the processor's counter is not to be trusted here";
  }

  // Long enough for several of the first, short segments.
  static constexpr uint64_t kRunNs = 150 * kNsPerMs;

  std::unique_ptr<CounterClock> clock_;
};

TEST_F(CounterClockTest, NeverRunsBackwards) {
  const uint64_t end_ns = KernelNs() + kRunNs;
  uint64_t previous_ns = clock_->NowNs();
  while (KernelNs() < end_ns) {
    for (int i = 0; i < 1000; ++i) {
      const uint64_t now_ns = clock_->NowNs();
      ASSERT_GE(now_ns, previous_ns);
      previous_ns = now_ns;
    }
  }
}

TEST_F(CounterClockTest, StaysNearTheKernelsClock) {
  const uint64_t end_ns = KernelNs() + kRunNs;
  uint64_t after_ns = 0;
  while (after_ns < end_ns) {
    const uint64_t before_ns = KernelNs();
    const uint64_t now_ns = clock_->NowNs();
    after_ns = KernelNs();
    ASSERT_GE(now_ns + CounterClock::kMaxOffsetNs, before_ns);
    ASSERT_LE(now_ns, after_ns + CounterClock::kMaxOffsetNs);
  }
}

// A segment ends while nobody asks for the time.
TEST_F(CounterClockTest, IsRightAgainAfterAnIdleTime) {
  for (int i = 0; i < 3; ++i) {
    const uint64_t first_ns = clock_->NowNs();
    // Longer than the segment that was begun at most 4^i * 4 ms ago.
    const uint64_t idle_until_ns = KernelNs() + (kNsPerMs * 10 << (2 * i));
    while (KernelNs() < idle_until_ns) {
    }
    const uint64_t before_ns = KernelNs();
    const uint64_t now_ns = clock_->NowNs();
    EXPECT_GE(now_ns, first_ns);
    EXPECT_GE(now_ns + CounterClock::kMaxOffsetNs, before_ns);
    EXPECT_LE(now_ns, KernelNs() + CounterClock::kMaxOffsetNs);
  }
}

// What one thread has published, no other one is behind of, but for the little that processors'
// counters may differ by.
TEST_F(CounterClockTest, ThreadsSeeOneTime) {
  constexpr uint64_t kApartNs = 10'000;
  std::atomic<uint64_t> latest_ns{0};
  std::atomic<uint64_t> furthest_behind_ns{0};
  const uint64_t end_ns = KernelNs() + kRunNs;
  const auto watch = [&] {
    uint64_t behind_ns = 0;
    while (KernelNs() < end_ns) {
      for (int i = 0; i < 1000; ++i) {
        const uint64_t published_ns = latest_ns.load(std::memory_order_seq_cst);
        CompleteLoads();
        const uint64_t now_ns = clock_->NowNs();
        if (now_ns < published_ns) behind_ns = std::max(behind_ns, published_ns - now_ns);
        uint64_t seen_ns = published_ns;
        while (now_ns > seen_ns && !latest_ns.compare_exchange_weak(seen_ns, now_ns)) {
        }
      }
    }
    uint64_t most_ns = furthest_behind_ns.load();
    while (behind_ns > most_ns && !furthest_behind_ns.compare_exchange_weak(most_ns, behind_ns)) {
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(watch);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(furthest_behind_ns.load(), kApartNs);
}

}  // namespace
}  // namespace weft
