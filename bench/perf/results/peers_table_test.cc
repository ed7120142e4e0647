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

// Who has TLS is compared with who has it, and with nobody else.
TEST(PeersTableTest, BothWithTlsAreSetInRelationForEveryWork) {
  Results results;
  constexpr Cell kBulk = {Pattern::kBulk, 1 << 20, 8};
  for (const Cell& cell : {kAlone, kMany, kBulk}) {
    Add(results, cell, "weft", 1);
    Add(results, cell, "grpc", 1);
  }
  Add(results, kAlone, "weft_tls", 10);
  Add(results, kAlone, "grpc_tls", 75);
  Add(results, kMany, "weft_tls", 6e6);
  Add(results, kMany, "grpc_tls", 1e6);
  Add(results, kBulk, "weft_tls", 3);
  Add(results, kBulk, "grpc_tls", 2);
  const std::string goals = PeerGoals(results);
  for (const char* const line :
       {"tcp, 64 B round trip, both with TLS: gRPC takes 7.50 times as long (>= 1: met)",
        "tcp, 64 B calls, 64 outstanding, both with TLS: 6.00 times gRPC's (>= 8: missed)",
        "tcp, 1 MiB of bulk, both with TLS: 1.50 times gRPC's (>= 1: met)"}) {
    EXPECT_TRUE(Has(goals, line)) << goals;
  }
  const std::string table = PeersTable(results, {"grpc", "grpc_tls"});
  EXPECT_TRUE(Has(table, "1.00 times grpc")) << table;
  EXPECT_FALSE(Has(table, "times grpc_tls")) << table;
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
