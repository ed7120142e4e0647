#include "bench/fleet/fleet.h"

#include <gtest/gtest.h>

#include "bench/fleet/fleet_server.h"

namespace weft::bench {
namespace {

FleetOptions Small() {
  FleetOptions options;
  options.servers = 30;
  options.clients = 60;
  options.part = 10;
  options.calls_per_s = 10;
  options.busy_calls_per_s = 50;
  options.seconds = 3;
  options.peer_timeout_us = 1'000'000;
  options.killed = 2;
  options.vanished = 2;
  options.failing = 2;
  options.hung = 2;
  options.drained = 2;
  options.restarted = 2;
  options.machines = 2;
  return options;
}

// Servers that hang show what ejection does where a client goes on sending them calls: in turn, and
// with room for those that nobody answers.
FleetOptions InTurn() {
  FleetOptions options = Small();
  options.policy = BalancingPolicy::kRoundRobin;
  options.outstanding = 64;
  return options;
}

FleetOptions WithoutEjection(FleetOptions options) {
  options.ejection = false;
  return options;
}

class FleetTest : public testing::Test {
 protected:
  static const FleetFigures& Figures() {
    static const auto* const figures = new FleetFigures(*RunFleet(Small()));
    return *figures;
  }
  static const FleetFigures& FiguresWithoutEjection() {
    static const auto* const figures = new FleetFigures(*RunFleet(WithoutEjection(Small())));
    return *figures;
  }
};

TEST_F(FleetTest, EveryServerHasAsManyClients) {
  EXPECT_EQ(Figures().connections, 600u);
  EXPECT_GE(Figures().fewest_clients, 18u);
  EXPECT_LE(Figures().most_clients, 22u);
}

TEST_F(FleetTest, LoadLiesAsEvenlyAsChanceAllows) {
  const FleetPhase& steady = Figures().steady;
  EXPECT_EQ(steady.failed, 0u);
  EXPECT_GT(steady.load.calls, 1500u);
  EXPECT_LT(steady.load.deviation, 1.6 * steady.load.deviation_of_chance);
}

TEST_F(FleetTest, ADeadServerIsChosenUntilItsDeathIsKnownAndNoLonger) {
  EXPECT_EQ(Figures().killed.failed, 0u);
  EXPECT_LT(Figures().last_client_knew_ms, 10);  // SimOptions::lifeline_delay_ns is 1 ms
}

// Of a process that dies the kernel tells; of a host that is cut off nobody does.
TEST_F(FleetTest, AHostThatVanishesIsChosenUntilItsSilenceIsTooLong) {
  EXPECT_GE(Figures().last_client_gave_up_ms, 1000);
  EXPECT_LT(Figures().last_client_gave_up_ms, 1010);
  EXPECT_GT(Figures().vanished.failed, 0u);
}

TEST_F(FleetTest, AServerThatAnswersWithErrorsIsEjected) {
  const FleetTrouble& failing = Figures().of_failing;
  EXPECT_GT(failing.calls_first_s, 50);
  EXPECT_LT(failing.calls_last_s, failing.calls_first_s / 20);
  // By each client that has one of them in its part.
  EXPECT_GE(failing.ejections, 30u);
  // Each sees five errors of one of them before.
  EXPECT_LT(Figures().failing.failed, 6 * failing.ejections);
}

// So what the test above sees is ejection's: a server that answers with an error at once looks like
// the one with least to do.
TEST_F(FleetTest, WithoutEjectionAServerThatAnswersWithErrorsIsCalledOn) {
  const FleetTrouble& failing = FiguresWithoutEjection().of_failing;
  EXPECT_EQ(failing.ejections, 0u);
  EXPECT_GT(failing.calls_last_s, 0.8 * failing.calls_first_s);
  EXPECT_GT(FiguresWithoutEjection().failing.failed, 2 * Figures().failing.failed);
}

// Calls that it does not answer count as its load, so it has more of it than others: that is the
// policy, and needs no ejection.
TEST_F(FleetTest, LeastLoadedLeavesAServerThatHangsAloneEvenWithoutEjection) {
  for (const FleetFigures* const figures : {&Figures(), &FiguresWithoutEjection()}) {
    const double of_a_well_one = figures->hung.load.mean / Small().seconds;
    EXPECT_GT(figures->of_hung.calls_first_s, 0);
    EXPECT_LT(figures->of_hung.calls_last_s, of_a_well_one / 5);
  }
}

TEST_F(FleetTest, AServerThatHangsIsSoonLeftAloneByEjection) {
  const FleetTrouble with = RunFleet(InTurn())->of_hung;
  EXPECT_GT(with.calls_first_s, 50);
  EXPECT_LT(with.calls_last_s, with.calls_first_s / 20);
  EXPECT_GE(with.ejections, 30u);
  const FleetTrouble without = RunFleet(WithoutEjection(InTurn()))->of_hung;
  EXPECT_GT(without.calls_last_s, 0.8 * without.calls_first_s);
}

TEST_F(FleetTest, AListThatChangesFailsNoCall) {
  EXPECT_EQ(Figures().drained.failed, 0u);
  EXPECT_LT(Figures().last_drained_ms, 1000);
}

// A call that has left when its server says goodbye is refused as not run, and goes to another one.
TEST_F(FleetTest, ServersThatShutDownWithGraceFailNoCallAndAreUsedAgain) {
  EXPECT_EQ(Figures().restarted.failed, 0u);
  EXPECT_GE(Figures().running_at_shutdown, Small().restarted);
  EXPECT_EQ(Figures().cut_by_shutdown, 0u);
  EXPECT_EQ(Figures().restarted.retries, Figures().refused_by_shutdown);
  EXPECT_GT(Figures().restarted.load.calls, 500u);
  EXPECT_LT(Figures().longest_shutdown_ms, kFleetGraceUs / 1e3);
  EXPECT_GT(Figures().fewest_calls_again, 0u);
}

TEST_F(FleetTest, AKeyStaysWithItsServerUntilThatIsGone) {
  FleetOptions options = Small();
  options.policy = BalancingPolicy::kConsistentHash;
  options.clients = 30;
  options.seconds = 2;
  options.keys = 20;
  const FleetFigures figures = *RunFleet(options);
  EXPECT_EQ(figures.steady.moved, 0u);
  EXPECT_EQ(figures.steady.failed + figures.killed.failed + figures.drained.failed +
                figures.restarted.failed,
            0u);
  // Those of the two servers of thirty that have died, once each.
  EXPECT_GT(figures.killed.moved, 0u);
  EXPECT_LT(figures.killed.moved, options.clients * options.keys / 5);
}

// The file source looks by the engine's timers, so by the simulated clock, at a file of this host:
// what it finds there, and when, is not of the simulation, so that two runs differ in small things.
TEST_F(FleetTest, ClientsThatWatchAFileFindItsServersAndHearOfItsChange) {
  FleetOptions options = Small();
  options.naming = FleetNaming::kFile;
  options.clients = 30;
  const FleetFigures figures = *RunFleet(options);
  EXPECT_EQ(figures.connections, 300u);
  EXPECT_EQ(figures.steady.failed, 0u);
  EXPECT_EQ(figures.drained.failed, 0u);
  EXPECT_GT(figures.last_drained_ms, 0);
  EXPECT_LT(figures.last_drained_ms, kFleetRefreshUs / 1e3 + 1000);
}

TEST_F(FleetTest, TheSameSeedGivesTheSameRun) {
  FleetOptions options = Small();
  options.clients = 10;
  options.seconds = 2;
  const uint64_t hash = RunFleet(options)->trace_hash;
  EXPECT_EQ(RunFleet(options)->trace_hash, hash);
  options.seed = 2;
  EXPECT_NE(RunFleet(options)->trace_hash, hash);
}

TEST(FleetOptionsTest, SaysWhichOptionIsWrong) {
  FleetOptions options = Small();
  options.killed = 30;
  EXPECT_TRUE(absl::IsInvalidArgument(RunFleet(options).status()));
}

}  // namespace
}  // namespace weft::bench
