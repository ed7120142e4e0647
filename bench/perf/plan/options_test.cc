#include "bench/perf/plan/options.h"

#include <utility>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

TEST(PerfOptionsTest, WithoutArgumentsTheWholeMatrixIsMeasuredOnBothPaths) {
  const auto options = ParsePerfOptions({});
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->paths, (std::vector<std::string>{"shm", "tcp"}));
  EXPECT_EQ(options->cells, AllCells());
  EXPECT_EQ(options->rounds, 5);
  EXPECT_EQ(options->json_file, "");
  EXPECT_FALSE(options->with_peers);
}

TEST(PerfOptionsTest, QuickIsTheSummaryUnlessOtherCellsAreNamed) {
  EXPECT_LT(ParsePerfOptions({"--quick"})->cells.size(), 15u);
  EXPECT_EQ(ParsePerfOptions({"--quick", "--only", "read"})->cells, *CellsOnly("read"));
}

TEST(PerfOptionsTest, ValuesFollowTheirNameOrAnEqualsSign) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"--json", "a.json", "--repeat", "2", "--only", "unary:64:1"},
        {"--json=a.json", "--repeat=2", "--only=unary:64:1"}}) {
    const auto options = ParsePerfOptions(arguments);
    ASSERT_TRUE(options.ok());
    EXPECT_EQ(options->json_file, "a.json");
    EXPECT_EQ(options->rounds, 2);
    EXPECT_EQ(options->cells.size(), 1u);
  }
}

TEST(PerfOptionsTest, EveryPathCanBeAskedForInAnyOrder) {
  const auto options = ParsePerfOptions({"--paths=siw,rxe,verbs,tcp,shm"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->paths, (std::vector<std::string>{"siw", "rxe", "verbs", "tcp", "shm"}));
}

TEST(PerfOptionsTest, AnUnknownPathIsToldWhichOnesThereAre) {
  const auto options = ParsePerfOptions({"--paths=rxe,ib"});
  ASSERT_FALSE(options.ok());
  for (const char* name : {"\"ib\"", "shm", "verbs", "rxe", "siw"}) {
    EXPECT_NE(options.status().message().find(name), absl::string_view::npos) << name;
  }
}

TEST(PerfOptionsTest, RoundsAskedForHoldEvenIfQuick) {
  EXPECT_EQ(ParsePerfOptions({"--quick"})->rounds, 3);
  EXPECT_EQ(ParsePerfOptions({"--repeat=9", "--quick"})->rounds, 9);
}

TEST(PerfOptionsTest, WhatIsWrongIsNamed) {
  for (const auto& [argument, named] : {std::pair{"--paths=ib", "ib"},
                                        {"--paths=,", "--paths"},
                                        {"--only=x", "--only"},
                                        {"--repeat=0", "0"},
                                        {"--seconds=0", "0"},
                                        {"--repeat=x", "x"},
                                        {"--json", "--json"},
                                        {"--fast", "--fast"}}) {
    const auto options = ParsePerfOptions({argument});
    ASSERT_FALSE(options.ok()) << argument;
    EXPECT_NE(options.status().message().find(named), absl::string_view::npos) << argument;
  }
}

}  // namespace
}  // namespace weft::bench
