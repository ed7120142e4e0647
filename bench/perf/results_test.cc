#include "bench/perf/results.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

TEST(ResultsTest, AResultIsTheMedianOverTheRounds) {
  Results results;
  for (double value : {9.0, 1.0, 2.0}) results.AddRound({{"shm.x", value}}, /*fit=*/true);
  EXPECT_EQ(results.Median("shm.x"), 2.0);
  results.AddRound({{"shm.x", 3.0}}, /*fit=*/true);
  EXPECT_EQ(results.Median("shm.x"), 2.5);
}

TEST(ResultsTest, RoundsOnAnUnfitMachineCountOnlyIfThereIsNoOther) {
  Results results;
  results.AddRound({{"shm.x", 100.0}}, /*fit=*/false);
  EXPECT_EQ(results.Median("shm.x"), 100.0);
  results.AddRound({{"shm.x", 1.0}}, /*fit=*/true);
  EXPECT_EQ(results.Median("shm.x"), 1.0);
  EXPECT_EQ(results.rounds(), 2);
  EXPECT_EQ(results.fit_rounds(), 1);
}

TEST(ResultsTest, WhatWasNotMeasuredHasNoResult) {
  EXPECT_EQ(Results().Median("shm.x"), std::nullopt);
  EXPECT_EQ(Results().ToJsonLines(), "");
}

TEST(ResultsTest, EachMetricIsOneLineOfJson) {
  Results results;
  results.AddRound({{"shm.unary_64B.p50_us", 0.7}, {"shm.raw_rate_64B.per_s", 3250000}}, true);
  EXPECT_EQ(results.ToJsonLines(),
            "{\"metric\": \"shm.raw_rate_64B.per_s\", \"value\": 3.25e+06}\n"
            "{\"metric\": \"shm.unary_64B.p50_us\", \"value\": 0.7}\n");
}

TEST(ResultsTest, TheTableSetsWeftInRelationToRaw) {
  Results results;
  results.AddRound({{"tcp.raw_rtt_64B.p50_us", 8.0}, {"tcp.unary_64B.p50_us", 10.0}}, true);
  const std::string table = results.ToTable({"tcp", "shm"});
  EXPECT_NE(table.find("8.000"), std::string::npos);
  EXPECT_NE(table.find("1.25"), std::string::npos);
  EXPECT_EQ(table.find("shm"), std::string::npos) << "a path without results has no rows";
}

TEST(ResultsTest, TheTableSaysWhatARatioIsToBe) {
  Results results;
  results.AddRound({{"tcp.raw_read_64B.p50_us", 8.0}, {"tcp.read_64B.p50_us", 8.4}}, true);
  results.AddRound({{"tcp.raw_rtt_64B.p50_us", 8.0}, {"tcp.unary_64B.p50_us", 8.0}}, true);
  const std::string table = results.ToTable({"tcp"});
  EXPECT_NE(table.find("1.05  <= 1.15\n"), std::string::npos) << table;
  EXPECT_NE(table.find("1.00\n"), std::string::npos) << "no goal, nothing: " << table;
}

TEST(ResultsTest, OfAnEmulatedPathTheTableHasRatiosAndNoFigures) {
  Results results;
  results.SetEmulated("rxe");
  results.AddRound({{"rxe.raw_rtt_64B.p50_us", 8777}, {"rxe.unary_64B.p50_us", 17554}}, true);
  results.AddRound({{"rxe.raw_oneway_64B.per_s", 3210000}}, true);
  results.AddRound({{"tcp.raw_rtt_64B.p50_us", 9.5}}, true);
  const std::string table = results.ToTable({"rxe", "tcp"});
  EXPECT_NE(table.find("2.00"), std::string::npos) << table;
  EXPECT_NE(table.find("emulated"), std::string::npos) << table;
  for (const char* figure : {"8777", "17554", "3.21", "one way"}) {
    EXPECT_EQ(table.find(figure), std::string::npos) << table;
  }
  EXPECT_NE(table.find("9.500"), std::string::npos) << "other paths keep theirs: " << table;
}

TEST(ResultsTest, EmulatedMetricsAreMarkedInJson) {
  Results results;
  results.SetEmulated("siw");
  results.AddRound({{"siw.unary_64B.p50_us", 900}, {"tcp.unary_64B.p50_us", 9}}, true);
  EXPECT_EQ(results.ToJsonLines(),
            "{\"metric\": \"siw.unary_64B.p50_us\", \"value\": 900, \"emulated\": true}\n"
            "{\"metric\": \"tcp.unary_64B.p50_us\", \"value\": 9}\n");
}

}  // namespace
}  // namespace weft::bench
