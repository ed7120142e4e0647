#include "bench/fleet/evenness.h"

#include <gtest/gtest.h>

namespace weft::bench {
namespace {

// Clients that call so much that they know their servers: ten calls of each are under way.
EvennessFigures OfFewClients(FleetChoice choice, uint64_t seed = 1) {
  EvennessOptions options;
  options.servers = 20;
  options.clients = 4;
  options.choice = choice;
  options.workers = 2;
  options.service_us = 20'000;
  options.seconds = 4;
  options.machines = 2;
  options.seed = seed;
  return *RunEvenness(options);
}

class EvennessTest : public testing::Test {
 protected:
  static const EvennessFigures& Random() {
    static const EvennessFigures figures = OfFewClients(FleetChoice::kRandom);
    return figures;
  }
  static const EvennessFigures& LeastLoaded() {
    static const EvennessFigures figures = OfFewClients(FleetChoice::kLeastLoaded);
    return figures;
  }
};

TEST_F(EvennessTest, ServersHaveMuchToDo) {
  EXPECT_EQ(Random().failed, 0u);
  EXPECT_GT(Random().calls, 5000u);
  // 1.5 of two workers are busy; and what waits.
  EXPECT_GT(Random().mean_here, 1.5);
  EXPECT_GE(Random().p50_ms, 20);
}

// A choice at random would not pass.
TEST_F(EvennessTest, LeastLoadedKeepsCallsFromWaiting) {
  EXPECT_EQ(LeastLoaded().failed, 0u);
  EXPECT_LT(LeastLoaded().p99_ms - 20, 0.6 * (Random().p99_ms - 20));
  EXPECT_LT(LeastLoaded().mean_here, Random().mean_here);
  EXPECT_LT(LeastLoaded().most_here, Random().most_here);
}

TEST_F(EvennessTest, RoundRobinIsMoreEvenThanChance) {
  const EvennessFigures figures = OfFewClients(FleetChoice::kRoundRobin);
  EXPECT_EQ(figures.failed, 0u);
  EXPECT_LT(figures.p99_ms, Random().p99_ms);
  EXPECT_LT(figures.most_loaded, Random().most_loaded);
}

// The ring gives some servers more keys than others (HashRing::kPoints): so many that calls wait
// longer there than by chance.
TEST_F(EvennessTest, HashedKeysAreLessEvenThanChance) {
  const EvennessFigures figures = OfFewClients(FleetChoice::kConsistentHash);
  EXPECT_EQ(figures.failed, 0u);
  EXPECT_GT(figures.p99_ms, Random().p99_ms);
}

// Of a server with two hundred clients each knows nearly nothing.
TEST_F(EvennessTest, ManyClientsThatCallLittleDoNotKnowTheirServers) {
  EvennessOptions options;
  options.servers = 10;
  options.clients = 500;
  options.part = 4;
  options.workers = 2;
  options.service_us = 20'000;
  options.seconds = 4;
  options.machines = 2;
  const EvennessFigures least = *RunEvenness(options);
  options.choice = FleetChoice::kRandom;
  const EvennessFigures random = *RunEvenness(options);
  EXPECT_GT(least.p99_ms, 0.7 * random.p99_ms);
}

TEST_F(EvennessTest, TheSameSeedGivesTheSameRun) {
  EXPECT_EQ(OfFewClients(FleetChoice::kLeastLoaded).trace_hash, LeastLoaded().trace_hash);
  EXPECT_NE(OfFewClients(FleetChoice::kLeastLoaded, 2).trace_hash, LeastLoaded().trace_hash);
}

TEST(EvennessOptionsTest, SaysWhichOptionIsWrong) {
  EvennessOptions options;
  options.load = 1;
  EXPECT_TRUE(absl::IsInvalidArgument(RunEvenness(options).status()));
}

}  // namespace
}  // namespace weft::bench
