// The guide's programs print what the guide says.
#include <gtest/gtest.h>

#include <string>

#include "examples/testing/child_process.h"

namespace {

std::string OutputOf(const std::string& program) {
  const examples::Finished run = examples::RunToEnd({"examples/guide/" + program});
  EXPECT_EQ(run.status, 0) << program;
  return run.output;
}

TEST(GuideTest, ErrorsSayWhetherTheCallMayHaveRun) {
  EXPECT_EQ(OutputOf("deadlines"),
            "DEADLINE_EXCEEDED: send it again only if running twice does no harm\n"
            "UNAVAILABLE: send it again\n");
}

TEST(GuideTest, AThousandCallsAreUnderWay) {
  EXPECT_EQ(OutputOf("async_calls"), "3000 words in 1000 calls\n");
}

TEST(GuideTest, PayloadsComeBack) { EXPECT_EQ(OutputOf("bulk"), "1048576 bytes came back\n"); }

TEST(GuideTest, MemoryIsUsedInPlace) {
  EXPECT_EQ(OutputOf("remote_memory"), "account 7: 100, then 120\n");
}

TEST(GuideTest, AnApplicationsLoopDrivesTheEngine) { EXPECT_EQ(OutputOf("own_loop"), "4 words\n"); }

}  // namespace
