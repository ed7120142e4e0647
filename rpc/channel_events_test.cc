// What a channel tells of its state and of its room, on a simulated network.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/testing/rpc_test.h"

namespace weft::test {
namespace {

using States = std::vector<ChannelState>;

class ChannelEventsTest : public RpcTest {
 protected:
  // Calls that are under way write to their outcomes.
  ~ChannelEventsTest() override { channel_.reset(); }

  void OpenLazily(ChannelOptions options = {}) {
    options.connect_at_once = false;
    OpenChannel(options);
  }
  ChannelWatch Watch(States& states) {
    auto watch = channel_->WatchState([&states](ChannelState state) { states.push_back(state); });
    EXPECT_TRUE(watch.ok()) << watch.status();
    return *std::move(watch);
  }
  void HoldOne() {
    outcomes_.emplace_back();
    stub_->Hold(Data(), &outcomes_.back().reply, {}, outcomes_.back().Callback());
  }
  // How a wait for room ends; empty: not yet.
  void WaitForRoom(std::optional<absl::Status>& end) {
    channel_->WhenWritable([&end](absl::Status status) {
      EXPECT_FALSE(end.has_value()) << "once";
      end = std::move(status);
    });
  }

  std::deque<Outcome> outcomes_;
};

constexpr ChannelState kIdle = ChannelState::kIdle;
constexpr ChannelState kConnecting = ChannelState::kConnecting;
constexpr ChannelState kReady = ChannelState::kReady;
constexpr ChannelState kTransientFailure = ChannelState::kTransientFailure;
constexpr ChannelState kShutdown = ChannelState::kShutdown;

// --- states --------------------------------------------------------------------------------------

TEST_F(ChannelEventsTest, AWatchSeesTheStateAndEachChange) {
  OpenLazily();
  EXPECT_EQ(channel_->state(), kIdle);
  States states;
  const ChannelWatch watch = Watch(states);
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(states, States({kIdle}));

  StartServer();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(states, States({kIdle, kConnecting, kReady}));
  EXPECT_EQ(channel_->state(), kReady);

  KillServer();
  network_.RunFor(3 * kNsPerSec);
  EXPECT_EQ(states, States({kIdle, kConnecting, kReady, kIdle}));

  states.clear();
  EXPECT_FALSE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(channel_->state(), kTransientFailure);
  network_.RunFor(3 * kNsPerSec);
  ASSERT_FALSE(states.empty());
  EXPECT_EQ(states.back(), kIdle) << "nobody wants the connection";

  states.clear();
  channel_.reset();
  EXPECT_EQ(states, States({kShutdown}));
}

TEST_F(ChannelEventsTest, AWatchThatIsGoneHearsNothing) {
  Start();
  States some, all;
  ChannelWatch watch = Watch(some);
  const ChannelWatch other = Watch(all);
  network_.RunFor(kNsPerMs);
  { const ChannelWatch gone = std::move(watch); }
  KillServer();
  network_.RunFor(3 * kNsPerSec);
  EXPECT_EQ(some, States({kReady}));
  EXPECT_EQ(all, States({kReady, kIdle}));
}

TEST_F(ChannelEventsTest, ACallbackMayDropItsOwnWatchAndOthersAndStartCalls) {
  Start();
  ChannelWatch own, other;
  States others;
  States states;
  Outcome outcome;
  own = *channel_->WatchState([&](ChannelState state) {
    states.push_back(state);
    if (state == kReady) return;
    stub_->Echo(MakeData(1, 1), &outcome.reply, {.wait_for_server = true}, outcome.Callback());
    own = ChannelWatch();
    other = ChannelWatch();
  });
  other = Watch(others);
  network_.RunFor(kNsPerMs);
  KillServer();
  network_.RunFor(3 * kNsPerSec);
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_EQ(states, States({kReady, kIdle}));
  EXPECT_EQ(others, States({kReady}));
}

TEST_F(ChannelEventsTest, AWatchMayOutliveItsChannel) {
  Start();
  States states;
  ChannelWatch watch = Watch(states);
  network_.RunFor(kNsPerMs);
  channel_.reset();
  EXPECT_EQ(states, States({kReady, kShutdown}));
  watch = ChannelWatch();
}

TEST_F(ChannelEventsTest, WatchesAreBounded) {
  Start();
  std::vector<ChannelWatch> watches;
  States states;
  for (int i = 0; i < 64; ++i) watches.push_back(Watch(states));
  const absl::Status status = channel_->WatchState([](ChannelState) {}).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  watches.pop_back();
  watches.push_back(Watch(states));
}

TEST_F(ChannelEventsTest, TheDestructorsCallbacksFindTheChannelClosed) {
  Start();
  Channel& channel = *channel_;
  absl::Status watching;
  std::optional<absl::Status> room;
  Outcome outcome;
  const ChannelWatch watch = *channel_->WatchState([&](ChannelState state) {
    if (state != kShutdown) return;
    watching = channel.WatchState([](ChannelState) {}).status();
    channel.WhenWritable([&](absl::Status status) { room = std::move(status); });
    stub_->Echo(Data(), &outcome.reply, {}, outcome.Callback());
  });
  channel_.reset();
  EXPECT_TRUE(absl::IsFailedPrecondition(watching)) << watching;
  ASSERT_TRUE(room.has_value());
  EXPECT_TRUE(absl::IsFailedPrecondition(*room)) << *room;
  EXPECT_EQ(outcome.completions, 1);
}

// --- room ----------------------------------------------------------------------------------------

TEST_F(ChannelEventsTest, WithRoomTheCallbackComesSoon) {
  Start();
  std::optional<absl::Status> end;
  WaitForRoom(end);
  EXPECT_FALSE(end.has_value()) << "not inside";
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
}

TEST_F(ChannelEventsTest, AFullChannelTellsWhenASlotIsFree) {
  ChannelOptions options;
  options.max_outstanding_calls = 2;
  options.max_queued_calls = 1;
  Start(options);
  for (int i = 0; i < 3; ++i) HoldOne();
  std::optional<absl::Status> end;
  WaitForRoom(end);
  network_.RunFor(kNsPerSec);
  EXPECT_FALSE(end.has_value());
  service_.Release();  // the queued call takes that slot
  network_.RunFor(kNsPerSec);
  EXPECT_FALSE(end.has_value());
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());

  // A call now is sent, and not queued.
  HoldOne();
  EXPECT_EQ(channel_->stats().queued, 0u);
  EXPECT_EQ(channel_->stats().outstanding, 2u);
}

TEST_F(ChannelEventsTest, EachCallbackFindsRoom) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  options.max_queued_calls = 0;
  Start(options);
  HoldOne();
  std::vector<int> order;
  for (int i = 0; i < 3; ++i) {
    channel_->WhenWritable([&, i](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      order.push_back(i);
      HoldOne();
    });
  }
  for (size_t i = 0; i < 4; ++i) {
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
    network_.RunFor(kNsPerSec);
    EXPECT_EQ(order.size(), i);
    service_.Release();
    ASSERT_TRUE(RunUntil([&] { return outcomes_[i].done(); }));
  }
  ASSERT_TRUE(RunUntil([&] { return outcomes_.back().done(); }));
  EXPECT_EQ(order, std::vector<int>({0, 1, 2}));
  for (const Outcome& outcome : outcomes_) EXPECT_EQ(outcome.status, absl::OkStatus());
}

// While somebody waits for room, calls go on.
TEST_F(ChannelEventsTest, CallsThatAreStartedMeanwhileComeFirst) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  HoldOne();
  std::optional<absl::Status> end;
  WaitForRoom(end);
  network_.RunFor(kNsPerMs);
  HoldOne();
  HoldOne();
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 1; }));
    network_.RunFor(kNsPerMs);
    EXPECT_FALSE(end.has_value());
    service_.Release();
  }
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
}

TEST_F(ChannelEventsTest, AnIdleChannelConnectsForWhoWaits) {
  OpenLazily();
  std::optional<absl::Status> end;
  WaitForRoom(end);
  network_.RunFor(3 * kNsPerSec);
  EXPECT_FALSE(end.has_value());
  EXPECT_GE(channel_->stats().connect_failures, 2u);
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
}

TEST_F(ChannelEventsTest, ALossIsWaitedFor) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  HoldOne();
  std::optional<absl::Status> end;
  WaitForRoom(end);
  network_.RunFor(kNsPerMs);
  KillServer();
  network_.RunFor(3 * kNsPerSec);
  EXPECT_TRUE(outcomes_[0].done());
  EXPECT_FALSE(end.has_value());
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return end.has_value(); }));
  EXPECT_EQ(*end, absl::OkStatus());
}

TEST_F(ChannelEventsTest, WhatCannotComeEndsWithAnError) {
  OpenLazily();
  std::optional<absl::Status> cancelled;
  WaitForRoom(cancelled);
  network_.RunFor(kNsPerMs);
  channel_.reset();
  ASSERT_TRUE(cancelled.has_value());
  EXPECT_TRUE(absl::IsCancelled(*cancelled)) << *cancelled;

  ChannelOptions options;
  options.connect_at_once = false;
  channel_ = *Channel::Open(client(), "no address", options);
  std::optional<absl::Status> nowhere;
  WaitForRoom(nowhere);
  ASSERT_TRUE(RunUntil([&] { return nowhere.has_value(); }));
  EXPECT_TRUE(absl::IsInvalidArgument(*nowhere)) << *nowhere;
}

TEST_F(ChannelEventsTest, CallbacksThatWaitAreBounded) {
  OpenLazily();
  int waiting = 0, refused = 0;
  for (int i = 0; i < 1025; ++i) {
    channel_->WhenWritable([&](const absl::Status& status) {
      ++(absl::IsResourceExhausted(status) ? refused : waiting);
    });
  }
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(waiting, 0);
  channel_.reset();
  EXPECT_EQ(waiting, 1024);
}

}  // namespace
}  // namespace weft::test
