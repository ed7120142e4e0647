// Over real providers, a call in steady state takes no heap, no lock and no registration, at
// neither end. (No map either: map_lookups_test.) What the provider's own library does is not
// counted.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>

#include "bench/instructions/ends.h"
#include "core/testing/hot_path_meter.h"

namespace weft::bench {
namespace {

using test::HotPathCounts;
using test::HotPathMeter;

constexpr uint64_t kWarmUpCalls = 2000;
constexpr uint64_t kCalls = 1000;

class HotPathTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    auto ends = Ends::Open(GetParam());
    ASSERT_TRUE(ends.ok()) << ends.status();
    ends_ = *std::move(ends);
  }

  std::unique_ptr<Ends> ends_;
};

TEST_P(HotPathTest, ABlockingCallTakesNothing) {
  ends_->CallBlocking(kWarmUpCalls);
  const uint64_t registrations = ends_->registrations();
  const HotPathMeter meter;
  ends_->CallBlocking(kCalls);
  EXPECT_EQ(meter.counts(), HotPathCounts());
  EXPECT_EQ(ends_->registrations(), registrations);
}

TEST_P(HotPathTest, CallsByCallbackTakeNothing) {
  for (const uint64_t outstanding : {1, 64}) {
    ends_->CallByCallback(kWarmUpCalls, outstanding);
    const uint64_t registrations = ends_->registrations();
    const HotPathMeter meter;
    ends_->CallByCallback(kCalls, outstanding);
    EXPECT_EQ(meter.counts(), HotPathCounts()) << outstanding << " outstanding";
    EXPECT_EQ(ends_->registrations(), registrations);
  }
}

TEST_P(HotPathTest, CallsWithStructsTakeNothing) {
  ends_->CallBlocking(kWarmUpCalls, Bodies::kStructs);
  ends_->CallByCallback(kWarmUpCalls, 64, Bodies::kStructs);
  const uint64_t registrations = ends_->registrations();
  const HotPathMeter meter;
  ends_->CallBlocking(kCalls, Bodies::kStructs);
  ends_->CallByCallback(kCalls, 64, Bodies::kStructs);
  EXPECT_EQ(meter.counts(), HotPathCounts());
  EXPECT_EQ(ends_->registrations(), registrations);
}

TEST_P(HotPathTest, TurnsWithoutCallsTakeNothing) {
  ends_->Idle(kWarmUpCalls);
  const HotPathMeter meter;
  ends_->Idle(kCalls);
  EXPECT_EQ(meter.counts(), HotPathCounts());
}

INSTANTIATE_TEST_SUITE_P(Paths, HotPathTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::bench
