#include "core/check.h"

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(Check, PassesWithoutAWord) {
  int evaluated = 0;
  WEFT_CHECK(++evaluated == 1);
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, FailureNamesTheConditionAndThePlace) {
  EXPECT_DEATH(WEFT_CHECK(1 + 1 == 3), "check failed: 1 \\+ 1 == 3, at core/check_test.cc:");
}

TEST(CheckDeathTest, DcheckChecksInDebugBuildsOnly) {
  int evaluated = 0;
#ifdef NDEBUG
  WEFT_DCHECK(++evaluated == 2);
  EXPECT_EQ(evaluated, 0);
#else
  EXPECT_DEATH(WEFT_DCHECK(++evaluated == 2), "check failed");
#endif
}

}  // namespace
}  // namespace weft
