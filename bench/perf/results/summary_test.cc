#include "bench/perf/results/summary.h"

#include <algorithm>

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr Cell kAlone = {Pattern::kUnary, 64, 1};
constexpr Cell kMany = {Pattern::kUnary, 64, 64};
constexpr Cell kOneWay = {Pattern::kMessages, 64, 64};
constexpr Cell kBulk = {Pattern::kBulk, 1 << 20, 8};

class SummaryTest : public testing::Test {
 protected:
  void AddLatency(const std::string& path, const std::string& kind, const Cell& cell, double us) {
    Outcome outcome;
    outcome.figures.latency_us.fill(us);
    results_.Add({path, cell, kind}, outcome);
  }
  void AddRate(const std::string& path, const std::string& kind, const Cell& cell, double per_s) {
    Outcome outcome;
    outcome.figures.per_s = per_s;
    results_.Add({path, cell, kind}, outcome);
  }
  void AddGBps(const std::string& path, const std::string& kind, const Cell& cell, double gbps) {
    AddRate(path, kind, cell, gbps * 1e9 / cell.bytes);
  }

  SummaryLine Line(const std::string& path, const std::string& what) {
    for (const SummaryLine& line : Summarize(results_, {path})) {
      if (line.what == what) return line;
    }
    ADD_FAILURE() << "no line " << what;
    return {};
  }

  Results results_;
};

constexpr char kRoundTrip[] = "64 B round trip, p50";
constexpr char kCalls[] = "64 B calls, 64 outstanding (raw: two messages)";
constexpr char kMessages[] = "64 B messages in these calls (raw: one way)";
constexpr char kBulkRow[] = "1 MiB bulk in calls (raw: its best transfer)";

TEST_F(SummaryTest, WeftIsSetInRelationToRaw) {
  AddLatency("tcp", "raw", kAlone, 8);
  AddLatency("tcp", "weft", kAlone, 10);
  const SummaryLine line = Line("tcp", kRoundTrip);
  EXPECT_EQ(line.raw, 8);
  EXPECT_EQ(line.weft, 10);
  EXPECT_EQ(line.ratio, 1.25);
}

TEST_F(SummaryTest, OnSharedMemoryARoundTripMayAddAFixedTimeAndHasABound) {
  AddLatency("shm", "raw", kAlone, 0.5);
  AddLatency("shm", "weft", kAlone, 0.63);
  EXPECT_EQ(Line("shm", kRoundTrip).holds, true);
  EXPECT_EQ(Line("shm", kRoundTrip).goal, "<= raw + 0.15, Weft < 0.64");
}

TEST_F(SummaryTest, AllGoalsOfALineHaveToHold) {
  AddLatency("shm", "raw", kAlone, 0.6);
  AddLatency("shm", "weft", kAlone, 0.7);  // <= 0.75, but not < 0.64
  EXPECT_EQ(Line("shm", kRoundTrip).holds, false);
}

TEST_F(SummaryTest, EachPathHasItsOwnGoals) {
  for (const char* path : {"tcp", "verbs"}) {
    AddLatency(path, "raw", kAlone, 10);
    AddLatency(path, "weft", kAlone, 11.2);
  }
  EXPECT_EQ(Line("tcp", kRoundTrip).goal, "<= 1.10");
  EXPECT_EQ(Line("tcp", kRoundTrip).holds, false);
  EXPECT_EQ(Line("verbs", kRoundTrip).goal, "<= 1.15");
  EXPECT_EQ(Line("verbs", kRoundTrip).holds, true);
}

TEST_F(SummaryTest, ACallIsTwoMessages) {
  AddRate("shm", "raw", kMany, 3e6);
  AddRate("shm", "weft", kMany, 5e6);
  AddRate("shm", "raw", kOneWay, 9e6);
  EXPECT_DOUBLE_EQ(*Line("shm", kCalls).weft, 5);
  EXPECT_EQ(Line("shm", kCalls).holds, true);
  EXPECT_DOUBLE_EQ(*Line("shm", kMessages).raw, 9);
  EXPECT_DOUBLE_EQ(*Line("shm", kMessages).weft, 10);
  EXPECT_EQ(Line("shm", kMessages).holds, true);
}

TEST_F(SummaryTest, BulkIsMeasuredAgainstWhateverRawDoesBest) {
  AddGBps("tcp", "weft", kBulk, 5);
  AddGBps("tcp", "raw", kBulk, 4);  // by hand what Weft does: no transfer of its own
  AddGBps("tcp", "raw", {Pattern::kWrite, 1 << 20, 8}, 5);
  AddGBps("tcp", "raw", {Pattern::kRead, 1 << 20, 8}, 4);
  EXPECT_DOUBLE_EQ(*Line("tcp", kBulkRow).ratio, 1);
  EXPECT_EQ(Line("tcp", kBulkRow).holds, true);
  AddGBps("tcp", "raw", {Pattern::kMessages, 1 << 20, 8}, 8);
  EXPECT_DOUBLE_EQ(*Line("tcp", kBulkRow).raw, 8);
  EXPECT_EQ(Line("tcp", kBulkRow).holds, false);
}

TEST_F(SummaryTest, WithoutTheOtherSideNothingIsJudged) {
  AddLatency("tcp", "weft", kAlone, 10);
  const SummaryLine line = Line("tcp", kRoundTrip);
  EXPECT_FALSE(line.ratio.has_value());
  EXPECT_FALSE(line.holds.has_value());
}

TEST_F(SummaryTest, WhatWasNotMeasuredHasNoLine) {
  AddLatency("tcp", "weft", kAlone, 10);
  EXPECT_TRUE(Summarize(results_, {"shm"}).empty());
  EXPECT_EQ(Summarize(results_, {"shm", "tcp"}).size(), 3u) << "p50, p99, p99.9";
}

TEST_F(SummaryTest, TheTableSaysWhatHoldsAndWhatFallsShort) {
  AddLatency("tcp", "raw", kAlone, 10);
  AddLatency("tcp", "weft", kAlone, 12);
  AddLatency("verbs", "raw", kAlone, 10);
  AddLatency("verbs", "weft", kAlone, 11);
  const std::string table = ToTable(Summarize(results_, {"tcp", "verbs"}));
  EXPECT_NE(table.find("1.20  falls short  <= 1.10\n"), std::string::npos) << table;
  EXPECT_NE(table.find("1.10  holds        <= 1.15\n"), std::string::npos) << table;
}

TEST_F(SummaryTest, OfAnEmulatedPathThereAreRatiosAndNoFigures) {
  AddLatency("rxe", "raw", kAlone, 8777);
  AddLatency("rxe", "weft", kAlone, 17554);
  AddRate("rxe", "raw", kMany, 100);
  AddRate("rxe", "weft", kMany, 9e6);
  AddRate("rxe", "raw", {Pattern::kRead, 64, 64}, 3210000);
  AddLatency("tcp", "raw", kAlone, 9.5);
  const std::string table = ToTable(Summarize(results_, {"rxe", "tcp"}));
  EXPECT_NE(table.find("2.00"), std::string::npos) << table;
  EXPECT_NE(table.find("emulated"), std::string::npos) << table;
  for (const char* figure : {"8777", "17554", "3.21", "reads", "Weft >= 5"}) {
    EXPECT_EQ(table.find(figure), std::string::npos) << table;
  }
  EXPECT_NE(table.find("9.500"), std::string::npos) << "other paths keep theirs: " << table;
}

TEST_F(SummaryTest, ItsCellsAreAllOfTheMatrixAndFew) {
  const std::vector<Cell> all = AllCells();
  const std::vector<Cell> cells = SummaryCells();
  for (const Cell& cell : cells) {
    EXPECT_NE(std::find(all.begin(), all.end(), cell), all.end()) << NameOf(cell);
    EXPECT_EQ(WhyNoCell(cell), "");
  }
  EXPECT_LE(cells.size(), 12u);
}

TEST_F(SummaryTest, TlsIsSetInRelationToWeftWithoutItAndToWhatAProcessorSeals) {
  AddLatency("tcp", "raw", kAlone, 8);
  AddLatency("tcp", "weft", kAlone, 10);
  AddLatency("tcp", "weft_tls", kAlone, 13);
  AddGBps("tcp", "weft_tls", kBulk, 2);
  AddGBps("tcp", "aes", kBulk, 4);
  const SummaryLine alone = Line("tcp", "TLS, 64 B round trip, p50 (raw: Weft without)");
  EXPECT_EQ(alone.raw, 10);
  EXPECT_EQ(alone.ratio, 1.3);
  EXPECT_EQ(alone.goal, "<= 1.35");
  EXPECT_EQ(alone.holds, true);
  const SummaryLine bulk = Line("tcp", "TLS, 1 MiB bulk (raw: AES-256-GCM, one core)");
  EXPECT_EQ(bulk.ratio, 0.5);
  EXPECT_EQ(bulk.holds, false);
}

TEST_F(SummaryTest, WhereNothingHasTlsNothingIsSaidOfIt) {
  AddLatency("shm", "weft", kAlone, 10);
  for (const SummaryLine& line : Summarize(results_, {"shm"})) {
    EXPECT_FALSE(line.what.starts_with("TLS")) << line.what;
  }
}

}  // namespace
}  // namespace weft::bench
