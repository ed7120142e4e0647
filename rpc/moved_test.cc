// A client whose server's address has been taken by another process: it has its new connection
// before it gives up the old one, and what is under way ends where it began.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/client_connection.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft::test {
namespace {

Bytes Moved() {
  Bytes frame(kCallHeaderBytes);
  EncodeMoved(frame.data());
  return frame;
}
Bytes Goaway(uint32_t unanswered) {
  Bytes frame(kCallHeaderBytes);
  EncodeGoaway(unanswered, frame.data());
  return frame;
}

// One peer for each connection, in their order: the server's processes.
class Processes final : public Acceptor {
 public:
  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override {
    if (refuses) return absl::UnavailableError("not now");
    return &peers.emplace_back();
  }
  std::deque<RawPeer> peers;
  bool refuses = false;
};

class MovedTest : public RpcTest {
 protected:
  void Begin(ChannelOptions options = {}) {
    ListenOptions listen;
    listen.hello = OldServerHello({"Echo", "Fail", "Hold"}).SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", listen, &processes_);
    OpenChannel(options);
    ASSERT_TRUE(RunUntil([&] { return IsOpen(0); }));
  }
  ~MovedTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }

  RawPeer& process(size_t number) { return processes_.peers[number]; }
  bool IsOpen(size_t number) {
    return processes_.peers.size() > number && process(number).connection != nullptr;
  }
  // Begins a call, whose request comes to that process.
  CallId Call(Outcome& outcome, size_t number) {
    const size_t before = process(number).received.size();
    stub_->Echo(Data(), &outcome.reply, {}, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return process(number).received.size() > before; }));
    EXPECT_EQ(process(number).received.size(), before + 1);
    return CallIdOf(process(number).received.back());
  }
  void Answer(size_t number, CallId id, Outcome& outcome) {
    process(number).Send(Reply(id, 0, 0, ""));
    ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(*outcome.status, absl::OkStatus());
  }

  // The server's second process, to which a bridge goes, says `notice` while calls run in both.
  void LeaveWhileCallsRunInTwoProcesses(const Bytes& notice) {
    Begin();
    Outcome old, bridged, next, last;
    const CallId of_old = Call(old, 0);
    process(0).Send(Moved());
    ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
    network_.RunFor(kNsPerMs);
    const CallId of_bridged = Call(bridged, 1);
    process(1).Send(notice);
    ASSERT_TRUE(RunUntil([&] { return IsOpen(2); }));
    network_.RunFor(kNsPerMs);
    Answer(2, Call(next, 2), next);  // it waits for neither
    Answer(0, of_old, old);
    ASSERT_TRUE(RunUntil([&] { return !IsOpen(0) && IsOpen(3) && !IsOpen(2); }));
    network_.RunFor(kNsPerMs);
    EXPECT_FALSE(bridged.done());
    EXPECT_TRUE(IsOpen(1)) << "a call is under way on it";
    EXPECT_EQ(channel_->stats().outstanding, 1u);
    Answer(1, of_bridged, bridged);
    ASSERT_TRUE(RunUntil([&] { return !IsOpen(1); }));
    network_.RunFor(kNsPerMs);
    Answer(3, Call(last, 3), last);
    const ChannelStats stats = channel_->stats();
    EXPECT_EQ(stats.calls_ok, 4u);
    EXPECT_EQ(stats.calls_failed, 0u);
    EXPECT_EQ(stats.outstanding, 0u) << "of bridges that are no more nothing is outstanding";
    EXPECT_EQ(processes_.peers.size(), 4u);
  }

  Processes processes_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(MovedTest, WhatIsUnderWayEndsWhereItBeganAndNewCallsDoNotWaitForIt) {
  Begin();
  Outcome old, next, last;
  const CallId of_old = Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  const CallId of_next = Call(next, 1);
  EXPECT_TRUE(IsOpen(0)) << "its call is under way";
  EXPECT_EQ(channel_->state(), ChannelState::kReady);
  Answer(1, of_next, next);
  Answer(0, of_old, old);
  // Nothing holds the old connection any more; the channel has one of its own again.
  ASSERT_TRUE(RunUntil([&] { return !IsOpen(0) && IsOpen(2) && !IsOpen(1); }));
  Answer(2, Call(last, 2), last);
  EXPECT_EQ(channel_->stats().calls_ok, 3u);
  EXPECT_EQ(channel_->stats().calls_failed, 0u);
  EXPECT_EQ(processes_.peers.size(), 3u);
}

TEST_F(MovedTest, UntilTheNewConnectionIsThereCallsGoToTheOldProcess) {
  Begin();
  processes_.refuses = true;
  process(0).Send(Moved());
  network_.RunFor(kNsPerSec);
  for (int i = 0; i < 3; ++i) {
    Outcome outcome;
    Answer(0, Call(outcome, 0), outcome);
  }
  processes_.refuses = false;
  ASSERT_TRUE(RunUntil([&] { return !IsOpen(0) && IsOpen(2); }));
  Outcome outcome;
  Answer(2, Call(outcome, 2), outcome);
}

TEST_F(MovedTest, CallsOverTheBridgeEndWhereTheyBegan) {
  Begin();
  Outcome old, bridged;
  const CallId of_old = Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  const CallId of_bridged = Call(bridged, 1);
  Answer(0, of_old, old);
  ASSERT_TRUE(RunUntil([&] { return IsOpen(2); }));
  network_.Settle();
  EXPECT_TRUE(IsOpen(1)) << "a call is under way on it";
  Outcome last;
  Answer(2, Call(last, 2), last);
  Answer(1, of_bridged, bridged);
  ASSERT_TRUE(RunUntil([&] { return !IsOpen(1); }));
}

TEST_F(MovedTest, AnIdleChannelMovesToo) {
  Begin();
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return !IsOpen(0) && IsOpen(2) && !IsOpen(1); }));
}

TEST_F(MovedTest, TheNextProcessMayMoveAsWell) {
  Begin();
  Outcome old;
  const CallId of_old = Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  process(1).Send(Moved());  // to the bridge
  ASSERT_TRUE(RunUntil([&] { return !IsOpen(1) && IsOpen(2); }));
  network_.Settle();
  Outcome next;
  Answer(2, Call(next, 2), next);
  Answer(0, of_old, old);
  ASSERT_TRUE(RunUntil([&] { return IsOpen(3) && !IsOpen(2); }));
  process(3).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(5) && !IsOpen(3) && !IsOpen(4); }));
  Outcome last;
  Answer(5, Call(last, 5), last);
}

// A call ran on A, others over the bridge to B, when B was replaced by C. When A's call had ended
// and the channel had its own connection again, B's calls ended with CANCELLED, outstanding for
// ever.
TEST_F(MovedTest, CallsOverABridgeWhoseProcessMovesEndWhereTheyBegan) {
  LeaveWhileCallsRunInTwoProcesses(Moved());
}

// The same, where B shut down: until A's call had ended, new calls waited for those of B as well.
TEST_F(MovedTest, CallsOverABridgeWhoseProcessGoesAwayEndWhereTheyBegan) {
  LeaveWhileCallsRunInTwoProcesses(Goaway(1));
}

// Each process of a server that starts over and over has a call that does not end: the client had a
// connection to each of them.
TEST_F(MovedTest, BridgesAreBoundedAndAtTheBoundNewCallsWaitForOneToEnd) {
  Begin();
  constexpr size_t kMost = ClientConnection::kMaxBridges;
  std::deque<Outcome> outcomes(1 + kMost);
  std::vector<CallId> ids;
  for (size_t number = 0; number <= kMost; ++number) {
    ASSERT_TRUE(RunUntil([&] { return IsOpen(number); }));
    network_.RunFor(kNsPerMs);
    ids.push_back(Call(outcomes[number], number));
    process(number).Send(Moved());
  }
  Outcome waits;
  network_.RunFor(10 * kNsPerMs);
  stub_->Echo(Data(), &waits.reply, {}, waits.Callback());
  network_.RunFor(10 * kNsPerMs);
  EXPECT_EQ(processes_.peers.size(), 1 + kMost);
  Answer(1, ids[1], outcomes[1]);
  const size_t next = 1 + kMost;
  ASSERT_TRUE(RunUntil([&] { return IsOpen(next) && process(next).received.size() == 1; }));
  EXPECT_FALSE(waits.done());
  Answer(next, CallIdOf(process(next).received[0]), waits);
  for (size_t number = 0; number <= kMost; ++number) {
    if (number != 1) Answer(number, ids[number], outcomes[number]);
  }
  EXPECT_EQ(channel_->stats().calls_failed, 0u);
}

// A bridge was lost, and came again, while a call ran in the old process: a watch heard of neither,
// and who had asked for a connection meanwhile not before that call had ended.
TEST_F(MovedTest, ProgramsHearWhatABridgeMakesOfTheChannelsState) {
  Begin();
  std::vector<ChannelState> states;
  const ChannelWatch watch =
      *channel_->WatchState([&states](ChannelState state) { states.push_back(state); });
  Outcome old;
  const CallId of_old = Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(states, std::vector({ChannelState::kReady}));
  processes_.refuses = true;
  process(1).connection->Close("it was killed");
  ASSERT_TRUE(RunUntil([&] { return states.back() == ChannelState::kIdle; }));
  std::optional<absl::Status> connected;
  internal::ConnectionOf(*channel_).Connect(
      [&connected](absl::Status status) { connected = std::move(status); });
  network_.RunFor(kNsPerMs);
  EXPECT_FALSE(connected.has_value());
  processes_.refuses = false;
  ASSERT_TRUE(RunUntil([&] { return connected.has_value(); }));
  EXPECT_EQ(*connected, absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return states.back() == ChannelState::kReady; }));
  EXPECT_EQ(states.size(), 3u);
  EXPECT_TRUE(IsOpen(0)) << "its call is under way";
  Answer(0, of_old, old);
}

TEST_F(MovedTest, AGoawayMayFollowAndEndsWhatItsServerHasNot) {
  Begin();
  Outcome old;
  Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  process(0).Send(Goaway(0));
  network_.Settle();
  process(0).connection->Close("the time is over");
  ASSERT_TRUE(RunUntil([&] { return old.done(); }));
  EXPECT_EQ(DeliveryOf(*old.status), Delivery::kNotSent) << *old.status;
  ASSERT_TRUE(RunUntil([&] { return IsOpen(2); }));
  Outcome last;
  Answer(2, Call(last, 2), last);
}

TEST_F(MovedTest, WhereTheOldProcessIsLostNewCallsFindTheNextOne) {
  Begin();
  Outcome old;
  Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  process(0).connection->Close("it was killed");
  ASSERT_TRUE(RunUntil([&] { return old.done() && IsOpen(2) && !IsOpen(1); }));
  EXPECT_EQ(DeliveryOf(*old.status), Delivery::kMayHaveRun);
  Outcome last;
  Answer(2, Call(last, 2), last);
}

TEST_F(MovedTest, WhereTheNextProcessIsLostItIsDialedAgain) {
  Begin();
  Outcome old, lost;
  const CallId of_old = Call(old, 0);
  process(0).Send(Moved());
  ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
  network_.Settle();
  Call(lost, 1);
  process(1).connection->Close("it was killed");
  ASSERT_TRUE(RunUntil([&] { return lost.done() && IsOpen(2); }));
  EXPECT_EQ(DeliveryOf(*lost.status), Delivery::kMayHaveRun);
  network_.Settle();
  Outcome next;
  Answer(2, Call(next, 2), next);
  Answer(0, of_old, old);
}

TEST_F(MovedTest, AChannelCanGoAtAnyTime) {
  for (int when = 0; when < 4; ++when) {
    SCOPED_TRACE(when);
    processes_.peers.clear();
    Begin();
    Outcome old, bridged;
    const CallId of_old = Call(old, 0);
    process(0).Send(Moved());
    if (when > 0) {
      ASSERT_TRUE(RunUntil([&] { return IsOpen(1); }));
      network_.Settle();
      Call(bridged, 1);
    }
    if (when > 1) Answer(0, of_old, old);
    if (when > 2) {
      ASSERT_TRUE(RunUntil([&] { return IsOpen(2); }));
    }
    stub_.reset();
    channel_.reset();
    EXPECT_TRUE(old.done());
    EXPECT_EQ(bridged.done(), when > 0);
    if (when > 0) {
      EXPECT_TRUE(absl::IsCancelled(*bridged.status)) << *bridged.status;
    }
    network_.Settle();
    listener_.reset();
  }
}

TEST_F(MovedTest, MalformedNoticesEndTheConnection) {
  const std::vector<std::vector<Bytes>> cases = {
      {WithByte(Moved(), 0, 1)},  {WithByte(Moved(), 4, 1)}, {WithByte(Moved(), 8, 1)},
      {WithByte(Moved(), 12, 1)}, {Truncated(Moved(), 15)},  {Moved(), Moved()},
      {Goaway(1), Moved()},
  };
  Begin();
  size_t number = 0;
  for (const auto& frames : cases) {
    SCOPED_TRACE(number);
    Outcome old;
    Call(old, number);
    processes_.refuses = true;  // no bridge is wanted here
    for (const Bytes& frame : frames) process(number).Send(frame);
    ASSERT_TRUE(RunUntil([&] { return old.done(); }));
    EXPECT_NE(old.status->message().find("malformed frame"), absl::string_view::npos)
        << *old.status;
    stub_.reset();
    channel_.reset();
    network_.Settle();
    processes_.refuses = false;
    number = processes_.peers.size();
    OpenChannel();
    ASSERT_TRUE(RunUntil([&] { return IsOpen(number); }));
  }
}

}  // namespace
}  // namespace weft::test
