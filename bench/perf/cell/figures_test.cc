#include "bench/perf/cell/figures.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr Cell kCell = {Pattern::kBulk, 1 << 20, 8};

Figures Some() {
  LatencyHistogram latency;
  for (uint64_t ns = 1; ns <= 100; ++ns) latency.Record(ns);
  return FiguresOf(latency);
}

TEST(FiguresTest, LatenciesBecomePercentilesInMicroseconds) {
  const Figures figures = Some();
  EXPECT_TRUE(figures.is_timed());
  EXPECT_DOUBLE_EQ(FigureNamed("p50_us", kCell, figures), 0.050);
  EXPECT_DOUBLE_EQ(FigureNamed("p99_us", kCell, figures), 0.099);
  EXPECT_DOUBLE_EQ(FigureNamed("p99.99_us", kCell, figures), 0.100);
  EXPECT_DOUBLE_EQ(figures.per_s, 1e9 / 50.5);
}

TEST(FiguresTest, BandwidthIsTheRateOfThePayload) {
  Figures figures;
  figures.per_s = 1000;
  EXPECT_DOUBLE_EQ(FigureNamed("GBps", kCell, figures), 1.048576);
  EXPECT_FALSE(figures.is_timed());
}

TEST(FiguresTest, ALineHoldsThemToTheLastDigit) {
  const Figures figures = Some();
  const auto again = FiguresFrom(ToLine(figures));
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->per_s, figures.per_s);
  EXPECT_EQ(again->latency_us, figures.latency_us);
}

TEST(FiguresTest, WhatIsNotSuchALineIsNone) {
  EXPECT_FALSE(FiguresFrom("").has_value());
  EXPECT_FALSE(FiguresFrom("1 2 3").has_value());
  EXPECT_FALSE(FiguresFrom("one").has_value());
}

TEST(FiguresTest, OfOneAtATimeTheLatencyLeadsOfMoreTheRate) {
  EXPECT_STREQ(LeadingFigure({Pattern::kRead, 64, 1}), "p50_us");
  EXPECT_STREQ(LeadingFigure({Pattern::kRead, 64, 8}), "per_s");
}

}  // namespace
}  // namespace weft::bench
