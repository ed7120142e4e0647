#include "bench/perf/results/results.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

const LegName kLeg = {"shm", {Pattern::kUnary, 64, 64}, "weft"};

Outcome Rate(double per_s, bool fit = true) {
  Outcome outcome;
  outcome.fit = fit;
  outcome.figures.per_s = per_s;
  return outcome;
}

TEST(ResultsTest, AResultIsTheMedianOverTheRounds) {
  Results results;
  for (double value : {9.0, 1.0, 2.0}) results.Add(kLeg, Rate(value));
  EXPECT_EQ(results.Median(kLeg, "per_s"), 2.0);
  results.Add(kLeg, Rate(3.0));
  EXPECT_EQ(results.Median(kLeg, "per_s"), 2.5);
}

TEST(ResultsTest, RoundsOnAnUnfitMachineCountOnlyIfThereIsNoOther) {
  Results results;
  results.Add(kLeg, Rate(100.0, /*fit=*/false));
  EXPECT_EQ(results.Median(kLeg, "per_s"), 100.0);
  results.Add(kLeg, Rate(1.0));
  EXPECT_EQ(results.Median(kLeg, "per_s"), 1.0);
  EXPECT_EQ(results.legs().at(kLeg).size(), 2u) << "none is forgotten";
}

TEST(ResultsTest, WhatWasNotMeasuredHasNoResult) {
  EXPECT_EQ(Results().Median(kLeg, "per_s"), std::nullopt);
}

TEST(ResultsTest, AMetricNamesItsLegAndItsFigure) {
  EXPECT_EQ(MetricName({"shm", {Pattern::kUnary, 64, 1}, "weft"}, "p50_us"),
            "shm.unary.64B.x1.weft.p50_us");
}

}  // namespace
}  // namespace weft::bench
