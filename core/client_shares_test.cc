#include "core/client_shares.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(ClientSharesTest, WhoTakesAllHeCanLeavesAnEighthToOthers) {
  ClientShares shares;
  const auto take_all = [&](uint64_t client, uint64_t at_once) {
    uint64_t taken = 0;
    for (; shares.HasRoom(client, at_once, 2048); taken += at_once) shares.Take(client, at_once);
    return taken;
  };
  EXPECT_EQ(take_all(1, 1), 1792u);
  EXPECT_EQ(take_all(2, 100), 200u) << "of 256";
  EXPECT_EQ(take_all(3, 1), 56u);
  EXPECT_EQ(shares.all(), 2048u);
  EXPECT_FALSE(shares.HasRoom(4, 1, 2048));
  shares.Give(1, 1792);
  EXPECT_EQ(shares.Of(1), 0u);
  EXPECT_EQ(shares.clients(), 2u);
  EXPECT_EQ(take_all(4, 1), 1536u);
  EXPECT_EQ(take_all(1, 1), 256u);
}

TEST(ClientSharesTest, MoreThanAnEighthCanBeKept) {
  ClientShares shares;
  shares.Take(1, 60);
  EXPECT_TRUE(shares.HasRoom(1, 4, 100, /*kept=*/36));
  EXPECT_FALSE(shares.HasRoom(1, 5, 100, /*kept=*/36));
  EXPECT_TRUE(shares.HasRoom(2, 40, 100, /*kept=*/36));
  EXPECT_TRUE(shares.HasRoom(2, 40, 100, /*kept=*/1000)) << "who has nothing";
}

TEST(ClientSharesTest, NoAmountIsTooLarge) {
  ClientShares shares;
  shares.Take(1, 5);
  EXPECT_FALSE(shares.HasRoom(1, ~uint64_t{0}, 10));
  EXPECT_FALSE(shares.HasRoom(2, 1, 4)) << "more is taken than there is now";
  EXPECT_FALSE(shares.HasRoom(2, 1, 0));
}

}  // namespace
}  // namespace weft
