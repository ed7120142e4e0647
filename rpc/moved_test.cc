// A client whose server's address has been taken by another process: it has its new connection
// before it gives up the old one, and what is under way ends where it began.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/client/client_context.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
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
    rpc::ServerHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(8);
    hello.set_max_request_bytes(1'000'000);
    rpc::ServiceTable* const table = hello.add_services();
    table->set_name("weft.test.Probe");
    for (const char* method : {"Echo", "Fail", "Hold"}) table->add_methods(method);
    ListenOptions listen;
    listen.hello = hello.SerializeAsString();
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
