// What calls use of core/ takes neither heap nor lock.
#include <cstdint>
#include <memory>

#include "core/clock.h"
#include "core/function.h"
#include "core/histogram.h"
#include "core/mpsc_queue.h"
#include "core/slab.h"
#include "core/spsc_queue.h"
#include "core/testing/hot_path_meter.h"
#include "core/timer_wheel.h"
#include "gtest/gtest.h"

namespace weft::test {
namespace {

constexpr int kTimes = 1000;

TEST(HotStructures, RecordingALatencyIsFreeOfLocks) {
  const auto histogram = std::make_unique<LatencyHistogram>();
  const HotPathMeter meter;
  for (uint64_t i = 0; i < kTimes; ++i) histogram->Record(i * 1000);
  EXPECT_EQ(meter.counts(), HotPathCounts());
  EXPECT_EQ(histogram->count(), uint64_t{kTimes});
}

TEST(HotStructures, SlabsAreMadeOnceAndThenOnlyUsed) {
  Slab<uint64_t> slab(16);
  const HotPathMeter meter;
  for (int i = 0; i < kTimes; ++i) {
    SlabHandle handle;
    ASSERT_NE(slab.Allocate(&handle), nullptr);
    slab.Free(handle);
  }
  EXPECT_EQ(meter.counts(), HotPathCounts());
}

TEST(HotStructures, QueuesPassFunctionsOnWithoutCopies) {
  MpscQueue<Function<void()>> inbox(16);
  SpscQueue<uint64_t> ring(16);
  uint64_t sum = 0;
  const HotPathMeter meter;
  for (uint64_t i = 0; i < kTimes; ++i) {
    ASSERT_TRUE(inbox.TryPush([&sum, i] { sum += i; }));
    Function<void()> task;
    ASSERT_TRUE(inbox.TryPop(&task));
    task();
    uint64_t out = 0;
    ASSERT_TRUE(ring.TryPush(uint64_t{i}));
    ASSERT_TRUE(ring.TryPop(&out));
  }
  EXPECT_EQ(meter.counts(), HotPathCounts());
  EXPECT_EQ(sum, uint64_t{kTimes} * (kTimes - 1) / 2);
}

TEST(HotStructures, DeadlinesComeAndGoInPlace) {
  class Deadline final : public Timer {
    void OnTimer() override {}
  };
  TimerWheel wheel(0);
  Deadline deadline;
  const HotPathMeter meter;
  for (uint64_t i = 0; i < kTimes; ++i) {
    wheel.Schedule(&deadline, i * kNsPerMs + kNsPerSec);
    wheel.Cancel(&deadline);
    wheel.Advance(i * kNsPerMs);
  }
  EXPECT_EQ(meter.counts(), HotPathCounts());
}

TEST(HotStructures, TheTimeIsReadWithoutLocks) {
  const Clock& clock = Clock::Real();
  const HotPathMeter meter;
  for (int i = 0; i < kTimes; ++i) clock.NowNs();
  EXPECT_EQ(meter.counts(), HotPathCounts());
}

}  // namespace
}  // namespace weft::test
