// The last line of a run says which goals were missed; nobody has to read the table for that.
#include "bench/scale/scale_report.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::bench {
namespace {

std::string LastLineOf(const ScaleReport& report) {
  const std::string table = report.ToTable();
  const size_t before = table.rfind('\n', table.size() - 2);
  return table.substr(before == std::string::npos ? 0 : before + 1);
}

TEST(ScaleReport, NamesTheGoalsThatWereMissed) {
  ScaleReport report;
  report.Add({"scale.slow", "slow", 1.06, "", 1.05, {}});
  report.Add({"scale.just", "just so", 1.05, "", 1.05, {}});
  report.Add({"scale.few", "few", 0.89, "", {}, 0.9});
  report.Add({"scale.many", "many", 0.9, "", {}, 0.9});
  report.Add({"scale.free", "has no goal", 1e9, "", {}, {}});
  report.Note("a note");
  EXPECT_EQ(LastLineOf(report), "goals: 2 of 4 missed: scale.slow, scale.few\n");
}

TEST(ScaleReport, SaysThatAllGoalsWereMet) {
  ScaleReport report;
  report.Add({"scale.just", "just so", 1.05, "", 1.05, {}});
  EXPECT_EQ(LastLineOf(report), "goals: all 1 met\n");
}

TEST(ScaleReport, SaysWhereThereAreNoGoals) {
  ScaleReport report;
  report.Add({"scale.free", "has no goal", 1, "", {}, {}});
  EXPECT_EQ(LastLineOf(report), "goals: none\n");
}

TEST(ScaleReport, IsNotCompleteWhenSomethingFailed) {
  ScaleReport report;
  EXPECT_TRUE(report.complete());
  report.Fail("idle, shm: it would not");
  EXPECT_FALSE(report.complete());
  EXPECT_NE(report.ToTable().find("failed: idle, shm: it would not\n"), std::string::npos);
}

}  // namespace
}  // namespace weft::bench
