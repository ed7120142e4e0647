#include "bench/perf/results/peers_table.h"

#include "gtest/gtest.h"

namespace weft::bench {
namespace {

constexpr Cell kAlone = {Pattern::kUnary, 64, 1};
constexpr Cell kMany = {Pattern::kUnary, 64, 64};

void Add(Results& results, const Cell& cell, const char* kind, double value) {
  Outcome outcome;
  outcome.round = 1;
  outcome.figures.per_s = value;
  if (cell.outstanding == 1) outcome.figures.latency_us.fill(value);
  results.Add({"tcp", cell, kind}, outcome);
}

bool Has(const std::string& text, const char* part) { return text.find(part) != std::string::npos; }

TEST(PeersTableTest, ThePeerThatWinsIsNamed) {
  Results results;
  Add(results, kAlone, "raw", 1);
  Add(results, kAlone, "weft", 12);
  Add(results, kAlone, "sockets", 8);
  const std::string table = PeersTable(results, {"grpc", "sockets"});
  EXPECT_TRUE(Has(table, "sockets, 1.50 times Weft")) << table;
}

TEST(PeersTableTest, MoreIsBetterForRatesAndWeftIsComparedWithTheNext) {
  Results results;
  Add(results, kMany, "weft", 3e6);
  Add(results, kMany, "grpc", 1e5);
  Add(results, kMany, "sockets", 1e6);
  const std::string table = PeersTable(results, {"grpc", "sockets"});
  EXPECT_TRUE(Has(table, "Weft, 3.00 times sockets")) << table;
  EXPECT_TRUE(Has(PeerGoals(results), "30.00 times gRPC's (>= 8: met)")) << PeerGoals(results);
}

TEST(PeersTableTest, WithoutPeersThereIsNoTable) {
  Results results;
  Add(results, kMany, "raw", 3e6);
  Add(results, kMany, "weft", 3e6);
  EXPECT_EQ(PeersTable(results, {"grpc"}), "");
  EXPECT_EQ(PeerGoals(results), "");
}

}  // namespace
}  // namespace weft::bench
