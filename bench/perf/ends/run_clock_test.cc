#include "bench/perf/ends/run_clock.h"

#include <gtest/gtest.h>

#include "core/clock.h"

namespace weft::bench {
namespace {

constexpr uint64_t kMs = 1'000'000;

class RateCounterTest : public ::testing::Test {
 protected:
  // Whether the run goes on when `finished` have ended `ms` later.
  bool Later(uint64_t ms, uint64_t finished) {
    clock_.Advance(ms * kMs);
    rate_.Add(finished);
    return rate_.Continue();
  }

  FakeClock clock_;
  RateCounter rate_{/*seconds=*/0.1, /*outstanding=*/8, clock_};
};

TEST_F(RateCounterTest, CountsWhatEndsEvenlyUntilTheTimeIsOver) {
  EXPECT_TRUE(Later(10, 1));
  EXPECT_TRUE(Later(1, 1));
  int turns = 0;
  while (Later(1, 1)) ++turns;
  EXPECT_GE(turns, 80);
  EXPECT_LE(turns, 96);
  EXPECT_NEAR(rate_.PerSecond(), 1000, 1);
}

// Bulk over emulated RDMA was said to run at 0.02 of raw libfabric. Eight calls were outstanding, a
// leg took 0.1 s, the eight transfers of 1 MiB that were queued on one connection half a second,
// and then all of them ended: one by one for Weft, whose run was over at the first, and all at once
// for raw libfabric.
TEST_F(RateCounterTest, WhatEndsInBunchesIsCountedInWholeBunchesHoweverTheyAreRead) {
  for (const uint64_t at_once : {1, 2, 8}) {
    RateCounter rate(0.1, 8, clock_);
    uint64_t left = 0;
    uint64_t next_ms = 400;
    uint64_t ms = 0;
    while (rate.Continue()) {
      clock_.Advance(kMs / 100);
      if (left > 0) {
        rate.Add(at_once);
        left -= at_once;
      } else if (++ms == next_ms * 100) {
        left = 8;
        next_ms += 400;
      }
      ASSERT_LT(ms, 1'000'000u) << "it does not end";
    }
    EXPECT_NEAR(rate.PerSecond(), 20, 0.1) << at_once << " at once";
  }
}

TEST_F(RateCounterTest, ARunThatIsLateStillCountsSomething) {
  EXPECT_TRUE(Later(5'000, 0));
  EXPECT_TRUE(Later(1'000, 8)) << "where the count begins";
  EXPECT_TRUE(Later(1'000, 8)) << "one bunch";
  EXPECT_FALSE(Later(1'000, 8));
  EXPECT_NEAR(rate_.PerSecond(), 8, 0.01);
}

}  // namespace
}  // namespace weft::bench
