// The example's service holds what it promises, for many seeds; and a seed gives the same run
// again.
#include <gtest/gtest.h>

#include <string>

#include "examples/testing/child_process.h"

namespace {

examples::Finished RunSeed(int seed) {
  return examples::RunToEnd({"examples/sim/sim", std::to_string(seed)});
}

TEST(SimTest, EveryAdditionCountsOnceWhateverHappensToTheNetwork) {
  for (int seed = 1; seed <= 20; ++seed) {
    const examples::Finished run = RunSeed(seed);
    EXPECT_EQ(run.status, 0) << run.output;
    EXPECT_NE(run.output.find("total 200,"), std::string::npos) << run.output;
  }
}

TEST(SimTest, ASeedGivesTheSameRunAgain) {
  const examples::Finished first = RunSeed(7);
  EXPECT_EQ(RunSeed(7).output, first.output);
}

}  // namespace
