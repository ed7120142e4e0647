#include "transport/framing/early_batches.h"

#include <gtest/gtest.h>

#include <array>

namespace weft {
namespace {

constexpr std::array<std::byte, 10> kBatch = {};

TEST(EarlyBatchesTest, AreTakenInOrderAndOnce) {
  EarlyBatches early;
  early.Start(2, 100);
  ASSERT_EQ(early.Keep(ByteSpan(kBatch).first(3)), nullptr);
  ASSERT_EQ(early.Keep(kBatch), nullptr);
  const EarlyBatches::Batches taken = early.Take();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].size(), 3u);
  EXPECT_EQ(taken[1].size(), 10u);
  EXPECT_TRUE(early.Take().empty());
}

TEST(EarlyBatchesTest, MoreThanCreditsAllowAreRefused) {
  EarlyBatches early;
  early.Start(1, 100);
  ASSERT_EQ(early.Keep(kBatch), nullptr);
  EXPECT_STREQ(early.Keep(kBatch), "a batch without a credit");
}

TEST(EarlyBatchesTest, MoreBytesThanWereAllowedAreRefusedAndClearedOnesCountNoMore) {
  EarlyBatches early;
  early.Start(10, 19);
  ASSERT_EQ(early.Keep(kBatch), nullptr);
  EXPECT_STREQ(early.Keep(kBatch), "too much before it was open");
  ASSERT_EQ(early.Keep(ByteSpan(kBatch).first(9)), nullptr);
  early.Clear();
  ASSERT_EQ(early.Keep(kBatch), nullptr);
  EXPECT_EQ(early.Take().size(), 1u);
  ASSERT_EQ(early.Keep(kBatch), nullptr);
}

}  // namespace
}  // namespace weft
