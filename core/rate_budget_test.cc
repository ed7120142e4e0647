#include "core/rate_budget.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

int TakeAll(RateBudget& budget, uint64_t now_ns) {
  int taken = 0;
  for (; budget.permits(now_ns); ++taken) budget.Take(now_ns);
  return taken;
}

TEST(RateBudget, PermitsABurstAndThenOneInEachInterval) {
  RateBudget budget(/*burst=*/10, /*interval_ns=*/100);
  EXPECT_EQ(TakeAll(budget, 1'000), 10);
  EXPECT_EQ(TakeAll(budget, 1'099), 0);
  EXPECT_EQ(TakeAll(budget, 1'100), 1);
  EXPECT_EQ(TakeAll(budget, 1'400), 3);
  EXPECT_EQ(TakeAll(budget, 1'000'000), 10) << "what was not used is no more than a burst";
}

TEST(RateBudget, SeveralAreTakenTogetherOrNotAtAll) {
  RateBudget budget(/*burst=*/10, /*interval_ns=*/100);
  EXPECT_FALSE(budget.permits(1'000, 11));
  EXPECT_TRUE(budget.permits(1'000, 10));
  budget.Take(1'000, 7);
  EXPECT_FALSE(budget.permits(1'000, 4));
  EXPECT_TRUE(budget.permits(1'000, 3));
}

}  // namespace
}  // namespace weft
