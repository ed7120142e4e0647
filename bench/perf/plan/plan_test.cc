#include "bench/perf/plan/plan.h"

#include <set>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

std::string NoChecksums(const Cell& cell, const PerfPath&) {
  return cell.pattern == Pattern::kBulkChecked ? "no checksums" : "";
}
std::string OnlyTcp(const Cell&, const PerfPath& path) {
  return path.name == "tcp" ? "" : "tcp only";
}
std::string Everything(const Cell&, const PerfPath&) { return ""; }

const std::vector<EndKind> kKinds = {{"raw", false, NoChecksums, nullptr, nullptr},
                                     {"weft", false, Everything, nullptr, nullptr},
                                     {"peer", true, OnlyTcp, nullptr, nullptr}};

PerfPath Named(const std::string& name) {
  PerfPath path;
  path.name = name;
  return path;
}
const std::vector<PerfPath> kPaths = {Named("shm"), Named("tcp")};

PerfOptions Options(const std::string& only) {
  PerfOptions options;
  options.cells = *CellsOnly(only);
  return options;
}

TEST(PlanTest, ATurnHasAllKindsOfOneCellOnOnePath) {
  const Plan plan = MakePlan(Options("unary:64:1,read:64:1"), kPaths, kKinds);
  ASSERT_EQ(plan.turns.size(), 4u);
  EXPECT_EQ(plan.turns[0].path, 0u);
  EXPECT_EQ(plan.turns[1].path, 1u);
  EXPECT_EQ(plan.turns[1].cell, plan.turns[0].cell);
  EXPECT_EQ(plan.turns[0].kinds, (std::vector<std::string>{"raw", "weft"}));
  EXPECT_EQ(plan.legs(), 8u);
}

TEST(PlanTest, PeersAreMeasuredWhenAskedForWhereTheyCan) {
  PerfOptions options = Options("unary:64:1");
  options.with_peers = true;
  const Plan plan = MakePlan(options, kPaths, kKinds);
  EXPECT_EQ(plan.turns[0].kinds.size(), 2u) << "shm";
  EXPECT_EQ(plan.turns[1].kinds.back(), "peer") << "tcp";
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].kind, "peer");
  EXPECT_EQ(plan.left_out[0].path, "shm");
}

TEST(PlanTest, WhatIsLeftOutHasItsReason) {
  const Plan plan = MakePlan(Options("bulk_checked:64:1,read:0:1"), {Named("shm")}, kKinds);
  ASSERT_EQ(plan.turns.size(), 1u);
  EXPECT_EQ(plan.turns[0].kinds, (std::vector<std::string>{"weft"}));
  ASSERT_EQ(plan.left_out.size(), 2u);
  EXPECT_EQ(plan.left_out[0].reason, "no checksums");
  EXPECT_EQ(plan.left_out[1].reason, WhyNoCell({Pattern::kRead, 0, 1}));
}

TEST(PlanTest, TheWholeMatrixFitsIntoTenMinutes) {
  PerfOptions options = Options("*");
  const Plan plan = MakePlan(options, kPaths, kKinds);
  EXPECT_GT(plan.turns.size(), 200u);
  EXPECT_LE(1.2 * plan.EstimatedSeconds(options.rounds), 600) << "with repeated turns";
  EXPECT_GE(plan.seconds_per_leg, 0.1) << "and each leg is long enough to mean something";
}

TEST(PlanTest, QuickFitsIntoTwentySecondsWhateverElseIsAsked) {
  PerfOptions options = *ParsePerfOptions({"--quick"});
  for (const int rounds : {1, 3, 9}) {
    options.rounds = rounds;
    EXPECT_LE(MakePlan(options, kPaths, kKinds).EstimatedSeconds(rounds), 20);
  }
}

TEST(PlanTest, FewCellsTakeTheirTimeButNotForEver) {
  EXPECT_EQ(MakePlan(Options("unary:64:1"), kPaths, kKinds).seconds_per_leg, 1);
}

TEST(PlanTest, SecondsAskedForHold) {
  PerfOptions options = *ParsePerfOptions({"--quick", "--seconds=3"});
  EXPECT_EQ(MakePlan(options, kPaths, kKinds).seconds_per_leg, 3);
}

// A peer may not be installed, or not be built in: then it says the same of every cell.
// It failed where no UCX was installed: its cells had several reasons, of which that was one, and
// the report named the others for a peer that was not there at all.
TEST(PlanTest, OfTheKindsThatThereAreEachMeasuresSomethingSomewhere) {
  for (const EndKind& kind : EndKinds()) {
    std::set<std::string> reasons;
    for (const PerfPath& path : kPaths) {
      for (const Cell& cell : AllCells()) {
        if (WhyNoCell(cell).empty()) reasons.insert(kind.why_not(cell, path));
      }
    }
    const bool is_missing = kind.is_peer && reasons.size() == 1;
    EXPECT_TRUE(is_missing || reasons.count("") == 1) << kind.name;
  }
}

}  // namespace
}  // namespace weft::bench
