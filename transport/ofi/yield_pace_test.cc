#include "transport/ofi/yield_pace.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

// How often it is asked in vain until it is due, that time included.
uint32_t QuestionsUntilDue(YieldPace& pace, uint64_t finds) {
  uint32_t questions = 1;
  while (!pace.IsDue(finds)) ++questions;
  return questions;
}

TEST(YieldPaceTest, IsPatientFirstAndThenYieldsEachTime) {
  YieldPace pace;
  EXPECT_EQ(QuestionsUntilDue(pace, 0), YieldPace::kPatience - 1);
  EXPECT_EQ(QuestionsUntilDue(pace, 0), 1u);
  EXPECT_EQ(QuestionsUntilDue(pace, 0), 1u);
}

TEST(YieldPaceTest, AFindMakesItPatientAgain) {
  YieldPace pace;
  QuestionsUntilDue(pace, 0);
  EXPECT_FALSE(pace.IsDue(/*finds=*/1));
  EXPECT_EQ(QuestionsUntilDue(pace, 1), YieldPace::kPatience - 1);
}

}  // namespace
}  // namespace weft
