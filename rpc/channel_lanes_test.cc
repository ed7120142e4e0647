// A channel on several engines, on a simulated network: calls go by other lanes while one has no
// connection.
#include "rpc/client/channel_lanes.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rpc/client/bulk_call.h"
#include "rpc/testing/lanes_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using ChannelLanesTest = LanesTest;

// --- which lanes are ready, and which away ------------------------------------------------------

TEST(LaneStates, AnotherReadyOneIsTheNextGoingRound) {
  LaneStates states;
  EXPECT_EQ(states.ReadyBehind(5), 5u) << "there is none";
  states.SetReady(5, true);
  EXPECT_EQ(states.ReadyBehind(5), 5u) << "there is no other";
  states.SetReady(2, true);
  states.SetReady(63, true);
  EXPECT_EQ(states.ReadyBehind(2), 5u);
  EXPECT_EQ(states.ReadyBehind(5), 63u);
  EXPECT_EQ(states.ReadyBehind(62), 63u);
  EXPECT_EQ(states.ReadyBehind(63), 2u);
  states.SetReady(63, false);
  EXPECT_EQ(states.ReadyBehind(5), 2u);
}

TEST(LaneStates, OneIsAwayOnlyWhileItIsNotReadyAndAnotherIs) {
  LaneStates states;
  states.SetAway(1, /*may_stand_aside=*/true);
  EXPECT_FALSE(states.IsAway(1)) << "no other is ready";
  states.SetReady(0, true);
  states.SetAway(1, /*may_stand_aside=*/true);
  EXPECT_TRUE(states.IsAway(1));
  EXPECT_FALSE(states.IsAway(0));
  states.SetReady(1, true);
  EXPECT_FALSE(states.IsAway(1));
  states.SetReady(1, false);
  EXPECT_FALSE(states.IsAway(1)) << "it has not said so";
  states.SetAway(1, /*may_stand_aside=*/false);
  EXPECT_FALSE(states.IsAway(1));
}

// --- calls ---------------------------------------------------------------------------------------

TEST_F(ChannelLanesTest, CallsGoByAnotherLaneWhileOneHasNoConnection) {
  Open();
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  CutHome();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  EXPECT_EQ(CallsOf(next_), 10u);
  EXPECT_EQ(&channel_->here(), &Lane(home_)) << "what is made with the channel stays where it was";
  EXPECT_NE(channel_->state(), ChannelState::kReady);

  network_.Heal(Name(home_), "server");
  ASSERT_TRUE(RunUntil([&] { return lanes().states().IsReady(home_); })) << "it tries by itself";
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 2u);
  EXPECT_EQ(channel_->stats().connects, kLanes + 1);
}

TEST_F(ChannelLanesTest, SoDoCallsWithCallbacks) {
  Open();
  CutHome();
  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_EQ(CallsOf(next_), 1u);
}

// A loss is one of the calls that were under way, and of no others.
TEST_F(ChannelLanesTest, CallsThatWereSentEndAndThoseOfOtherLanesGoOn) {
  Open();
  Outcome lost;
  Outcome held;
  stub_->Hold(MakeData(1, 10), &lost.reply, {}, lost.Callback());
  Probe::Stub(Lane(next_)).Hold(MakeData(2, 10), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
  network_.Partition(Name(home_), "server");
  ASSERT_TRUE(RunUntil([&] { return lost.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*lost.status)) << *lost.status;
  EXPECT_EQ(DeliveryOf(*lost.status), Delivery::kMayHaveRun);
  EXPECT_FALSE(held.done());
  while (!service_.held.empty()) service_.Release();
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_EQ(*held.status, absl::OkStatus());
  EXPECT_EQ(Echo(), absl::OkStatus());
}

TEST_F(ChannelLanesTest, WhenTheSecondIsLostTheThirdHasTheCalls) {
  Open();
  CutHome();
  EXPECT_EQ(Echo(), absl::OkStatus());
  network_.Partition(Name(next_), "server");
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf((home_ + 2) % kLanes), 1u);
}

// Then they are what they are on one engine: they wait for their own, or end.
TEST_F(ChannelLanesTest, WithoutAnyConnectionCallsStayWhereTheyAre) {
  Open();
  KillServer();
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  network_.RunFor(10 * kNsPerSec);
  for (uint32_t lane = 0; lane < kLanes; ++lane) EXPECT_FALSE(lanes().states().IsAway(lane));
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  StartServer();
  EXPECT_EQ(Echo({.wait_for_server = true}), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
}

TEST_F(ChannelLanesTest, ALaneThatHasNotConnectedConnectsWithItsFirstCall) {
  Open({.connect_at_once = false});
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  EXPECT_EQ(channel_->stats().connects, 1u);
  network_.RunFor(10 * kNsPerSec);
  EXPECT_EQ(channel_->stats().connects, 1u) << "nobody has called by the others";
}

// The memory is one engine's.
TEST_F(ChannelLanesTest, ACallThatLendsMemoryStaysOnItsLane) {
  Open();
  CutHome();
  BulkCall bulk(*channel_);
  const absl::Status status = Echo({.bulk = &bulk});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(CallsOf(next_), 0u);
}

TEST_F(ChannelLanesTest, AChannelMayEndWhileALaneIsAway) {
  Open();
  CutHome();
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  channel_.reset();
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
}

}  // namespace
}  // namespace weft::test
