#include "transport/ofi/yield_pace.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// How many looks in vain there are until it is due, that one included.
uint32_t LooksUntilDue(YieldPace& pace) {
  uint32_t looks = 1;
  while (!pace.IsDue(/*found=*/false)) ++looks;
  return looks;
}

TEST(YieldPaceTest, IsPatientFirstAndThenYieldsEveryFewLooks) {
  YieldPace pace;
  EXPECT_EQ(LooksUntilDue(pace), YieldPace::kPatientLooks);
  EXPECT_EQ(LooksUntilDue(pace), YieldPace::kLooksBetween);
  EXPECT_EQ(LooksUntilDue(pace), YieldPace::kLooksBetween);
}

TEST(YieldPaceTest, AFindMakesItPatientAgain) {
  YieldPace pace;
  LooksUntilDue(pace);
  for (uint32_t look = 1; look < YieldPace::kLooksBetween; ++look) {
    EXPECT_FALSE(pace.IsDue(/*found=*/false));
  }
  EXPECT_FALSE(pace.IsDue(/*found=*/true));
  EXPECT_EQ(LooksUntilDue(pace), YieldPace::kPatientLooks);
}

}  // namespace
}  // namespace weft
