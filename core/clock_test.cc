#include "core/clock.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(RealClock, DoesNotRunBackwards) {
  uint64_t previous_ns = Clock::Real().NowNs();
  for (int i = 0; i < 10'000; ++i) {
    const uint64_t now_ns = Clock::Real().NowNs();
    ASSERT_GE(now_ns, previous_ns);
    previous_ns = now_ns;
  }
}

TEST(Clock, ADeadlineThatIsTooFarNeverComes) {
  constexpr uint64_t kMostUs = kNever / kNsPerUs;
  EXPECT_EQ(LaterByUs(500, 0), 500u);
  EXPECT_EQ(LaterByUs(500, 2), 2500u);
  EXPECT_EQ(LaterByUs(0, kMostUs - 1), (kMostUs - 1) * kNsPerUs);
  EXPECT_EQ(LaterByUs(kNsPerSec, kMostUs - 1), kNever);
  EXPECT_EQ(LaterByUs(500, ~uint64_t{0}), kNever);
}

TEST(FakeClock, StandsStillUntilTold) {
  FakeClock clock(500);
  EXPECT_EQ(clock.NowNs(), 500u);
  clock.Advance(2 * kNsPerUs);
  EXPECT_EQ(clock.NowNs(), 2500u);
  clock.Set(kNsPerSec);
  EXPECT_EQ(clock.NowNs(), kNsPerSec);
}

TEST(FakeClock, GoesOnByAStepWheneverItIsLookedAt) {
  const FakeClock clock(500, 20);
  EXPECT_EQ(clock.NowNs(), 520u);
  EXPECT_EQ(clock.NowNs(), 540u);
}

TEST(FakeClock, DoesNotStartAtZero) { EXPECT_GT(FakeClock().NowNs(), 0u); }

TEST(FakeClockDeathTest, RefusesToRunBackwards) {
  FakeClock clock(500);
  EXPECT_DEATH(clock.Set(499), "check failed");
}

}  // namespace
}  // namespace weft
