// What was added is called for once, a line at a time, and the peer is called first.

#include "transport/warm_up.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

using Line = std::pair<const void*, bool>;  // with: to be written

class WarmUpTest : public testing::Test {
 protected:
  std::vector<Line> Lines() const {
    std::vector<Line> lines;
    warm_up_.ForEachLine(
        [&](const void* line, bool for_write) { lines.emplace_back(line, for_write); });
    return lines;
  }
  const void* LineOf(int i) const { return memory_ + i * kCacheLineBytes; }

  alignas(kCacheLineBytes) char memory_[40 * kCacheLineBytes] = {};
  WarmUp warm_up_;
};

TEST_F(WarmUpTest, EveryLineThatARangeTouchesIsCalledFor) {
  warm_up_.Begin(nullptr);
  warm_up_.Add(memory_ + 60, 8);  // the end of one, the beginning of the next
  warm_up_.AddForWrite(memory_ + 5 * kCacheLineBytes, kCacheLineBytes);
  warm_up_.Add(memory_ + 9 * kCacheLineBytes + 1, 2 * kCacheLineBytes);
  warm_up_.Add(memory_, 0);
  EXPECT_EQ(Lines(), (std::vector<Line>{{LineOf(0), false},
                                        {LineOf(1), false},
                                        {LineOf(5), true},
                                        {LineOf(9), false},
                                        {LineOf(10), false},
                                        {LineOf(11), false}}));
}

TEST_F(WarmUpTest, RangesAreCutAndThoseThatDoNotFitLeftOut) {
  warm_up_.Begin(nullptr);
  warm_up_.Add(memory_, sizeof(memory_));
  EXPECT_EQ(Lines().size(), 32u);
  for (uint32_t i = 0; i < 2 * WarmUp::kMost; ++i) warm_up_.Add(memory_, 1);
  EXPECT_EQ(Lines().size(), 32u + WarmUp::kMost - 1);
}

TEST_F(WarmUpTest, ItIsTakenOnceAndThePeerCalled) {
  std::atomic<uint8_t> call{0};
  EXPECT_FALSE(warm_up_.wanted());
  warm_up_.Begin(&call);
  warm_up_.Add(memory_, 1);
  ASSERT_TRUE(warm_up_.wanted());
  warm_up_.Run();
  EXPECT_EQ(call.load(), 1);
  EXPECT_FALSE(warm_up_.wanted());
}

TEST_F(WarmUpTest, TheReceiverCallsNobody) {
  std::atomic<uint8_t> call{0};
  warm_up_.Begin(&call);
  warm_up_.Fetch();
  EXPECT_EQ(call.load(), 0);
  EXPECT_FALSE(warm_up_.wanted());
}

TEST_F(WarmUpTest, OneThatIsClearedKnowsNothingMore) {
  std::atomic<uint8_t> call{0};
  warm_up_.Begin(&call);
  warm_up_.Add(memory_, 1);
  warm_up_.Clear();
  EXPECT_FALSE(warm_up_.wanted());
  EXPECT_TRUE(Lines().empty());
  warm_up_.Run();
  EXPECT_EQ(call.load(), 0);
}

TEST_F(WarmUpTest, WhereThereIsNothingToCallForNothingIsWanted) {
  EXPECT_FALSE(WarmUp::None().wanted());
}

}  // namespace
}  // namespace weft
