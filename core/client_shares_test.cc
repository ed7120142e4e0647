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

// One that had a little less than its share got as much again as it had.
TEST(ClientSharesTest, WhatComesWithALargeAmountIsWithinTheShareToo) {
  ClientShares shares;
  shares.Take(1, 49);
  shares.Take(2, 40);
  EXPECT_FALSE(shares.HasRoom(2, 10, 100)) << "a third for each";
  shares.Give(2, 20);
  shares.Take(3, 18);
  EXPECT_TRUE(shares.HasRoom(2, 5, 100));
  EXPECT_FALSE(shares.HasRoom(2, 6, 100)) << "a quarter for each";
  EXPECT_TRUE(shares.HasRoom(4, 13, 100)) << "who has nothing";
  EXPECT_FALSE(shares.HasRoom(4, 14, 100));
}

TEST(LeavesAsMuchTest, OthersHaveAsMuchAsOneClientOrItHasTheLeast) {
  const auto leaves = [](uint64_t of_client, uint64_t more, uint64_t all) {
    return LeavesAsMuch(of_client, more, all, /*most=*/100, /*least=*/30);
  };
  EXPECT_TRUE(leaves(40, 10, 40));
  EXPECT_FALSE(leaves(40, 11, 40));
  EXPECT_TRUE(leaves(25, 5, 80)) << "the least, beside another that has 55";
  EXPECT_FALSE(leaves(25, 6, 80));
  EXPECT_FALSE(leaves(25, 5, 96)) << "it does not fit";
  EXPECT_FALSE(leaves(0, ~uint64_t{0}, 40));
  EXPECT_FALSE(leaves(0, 1, 101)) << "more is held than there is now";
  EXPECT_TRUE(leaves(60, 0, 101)) << "nothing";
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
