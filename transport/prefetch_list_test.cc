// What is listed is prefetched once, a line at a time, and the peer is told first.

#include "transport/prefetch_list.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

using Line = std::pair<const void*, bool>;  // with: to be written

class PrefetchListTest : public testing::Test {
 protected:
  std::vector<Line> Lines() const {
    std::vector<Line> lines;
    list_.ForEachLine(
        [&](const void* line, bool for_write) { lines.emplace_back(line, for_write); });
    return lines;
  }
  const void* LineOf(int i) const { return memory_ + i * kCacheLineBytes; }

  alignas(kCacheLineBytes) char memory_[40 * kCacheLineBytes] = {};
  PrefetchList list_;
};

TEST_F(PrefetchListTest, EveryLineThatARangeTouchesIsListed) {
  list_.Begin(nullptr);
  list_.Add(memory_ + 60, 8);  // the end of one, the beginning of the next
  list_.AddForWrite(memory_ + 5 * kCacheLineBytes, kCacheLineBytes);
  list_.Add(memory_ + 9 * kCacheLineBytes + 1, 2 * kCacheLineBytes);
  list_.Add(memory_, 0);
  EXPECT_EQ(Lines(), (std::vector<Line>{{LineOf(0), false},
                                        {LineOf(1), false},
                                        {LineOf(5), true},
                                        {LineOf(9), false},
                                        {LineOf(10), false},
                                        {LineOf(11), false}}));
}

TEST_F(PrefetchListTest, RangesAreCutAndThoseThatDoNotFitLeftOut) {
  list_.Begin(nullptr);
  list_.Add(memory_, sizeof(memory_));
  EXPECT_EQ(Lines().size(), 32u);
  for (uint32_t i = 0; i < 2 * PrefetchList::kMost; ++i) list_.Add(memory_, 1);
  EXPECT_EQ(Lines().size(), 32u + PrefetchList::kMost - 1);
}

TEST_F(PrefetchListTest, ItIsTakenOnceAndThePeerIsTold) {
  std::atomic<uint8_t> flag{0};
  EXPECT_FALSE(list_.wanted());
  list_.Begin(&flag);
  list_.Add(memory_, 1);
  ASSERT_TRUE(list_.wanted());
  list_.Run();
  EXPECT_EQ(flag.load(), 1);
  EXPECT_FALSE(list_.wanted());
}

TEST_F(PrefetchListTest, TheReceiverTellsNobody) {
  std::atomic<uint8_t> flag{0};
  list_.Begin(&flag);
  list_.Fetch();
  EXPECT_EQ(flag.load(), 0);
  EXPECT_FALSE(list_.wanted());
}

TEST_F(PrefetchListTest, WhatIsTakenBackLeavesRoomForOthers) {
  list_.Begin(nullptr);
  list_.Add(memory_ + 30 * kCacheLineBytes, 1);
  const auto at = [&](uint32_t i) { return memory_ + i * kCacheLineBytes; };
  constexpr uint32_t kRoom = PrefetchList::kMost - 1;
  for (uint32_t i = 0; i <= kRoom; ++i) list_.Register(at(i), 1);
  EXPECT_EQ(Lines().size(), PrefetchList::kMost);
  const std::vector<Line> full = Lines();
  list_.Unregister(at(kRoom), 1);                // for which there was no room
  list_.Unregister(at(5), 2 * kCacheLineBytes);  // which nobody has registered
  EXPECT_EQ(Lines(), full);
  for (const uint32_t i : {0u, 5u, kRoom - 1}) {  // first, in the middle, last
    list_.Unregister(at(i), 1);
    list_.Unregister(at(i), 1);
    EXPECT_EQ(std::count(full.begin(), full.end(), Line(at(i), false)), 1);
    const std::vector<Line> less = Lines();
    EXPECT_EQ(less.size(), PrefetchList::kMost - 1);
    EXPECT_EQ(std::count(less.begin(), less.end(), Line(at(i), false)), 0);
    list_.Register(at(i), 1);
    EXPECT_EQ(Lines().size(), PrefetchList::kMost);
  }
}

TEST_F(PrefetchListTest, TheListOfThoseThatNeverGoColdStaysAsItIs) {
  PrefetchList::None().Unregister(memory_, 1);
  PrefetchList::None().Register(memory_, 1);
  size_t none = 0;
  PrefetchList::None().ForEachLine([&](const void* line, bool) { none += line == memory_; });
  EXPECT_EQ(none, 0u);
}

TEST_F(PrefetchListTest, OneThatIsClearedKnowsNothingMore) {
  std::atomic<uint8_t> flag{0};
  list_.Begin(&flag);
  list_.Add(memory_, 1);
  list_.Clear();
  EXPECT_FALSE(list_.wanted());
  EXPECT_TRUE(Lines().empty());
  list_.Run();
  EXPECT_EQ(flag.load(), 0);
}

TEST_F(PrefetchListTest, WhatNeverGoesColdIsNeverWantedAndTakesNothing) {
  PrefetchList& none = PrefetchList::None();
  none.Register(memory_, sizeof(memory_));
  EXPECT_FALSE(none.wanted());
  none.ForEachLine([](const void* line, bool) { EXPECT_EQ(line, nullptr); });
}

}  // namespace
}  // namespace weft
