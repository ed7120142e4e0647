// A server that asks clients to leave whose connections nobody uses: who is asked and when, and
// that no call is lost by it.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/testing/once_test.h"
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/raw_hellos.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/stream_test.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"

namespace weft::test {
namespace {

constexpr uint64_t kTimeoutUs = 4'000'000;
constexpr uint64_t kTimeoutNs = kTimeoutUs * kNsPerUs;
// Of the server's looks there are four in a timeout, so that one is late by a quarter of it.
constexpr uint64_t kLateNs = kTimeoutNs + kTimeoutNs / 4;
constexpr uint64_t kAWhileNs = 10 * kNsPerMs;
constexpr uint16_t kEcho = 0;

ServerOptions WithTimeout() {
  ServerOptions options;
  options.limits.idle_timeout_us = kTimeoutUs;
  return options;
}

Bytes Idle(uint32_t received) {
  Bytes frame(kCallHeaderBytes);
  EncodeIdle(received, frame.data());
  return frame;
}

class IdleTest : public StreamTest {
 protected:
  ~IdleTest() override {
    signals_.held.clear();
    streams_.talks.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
  }

  void StartIdle(const ChannelOptions& channel = {}) {
    server_ = *Server::Create(server_engine(), WithTimeout());
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->AddService(&streams_).ok());
    ASSERT_TRUE(server_->AddService(&signals_).ok());
    const absl::Status listening = server_->Listen("sim:server");
    ASSERT_TRUE(listening.ok()) << listening;
    OpenChannel(channel);
    chat_.emplace(*channel_);
    send_.emplace(*channel_);
  }
  void Call() {
    Outcome outcome;
    stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
    ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
    ASSERT_EQ(*outcome.status, absl::OkStatus());
  }
  void RunFor(uint64_t ns) { network_.RunFor(ns); }
  uint32_t connections() { return server_->stats().connections; }
  uint64_t told() { return server_->stats().told_idle; }

  SignalService signals_;
  std::optional<Signals::Stub> send_;
};

// --- who leaves ----------------------------------------------------------------------------------

TEST_F(IdleTest, AClientThatDoesNothingLeavesAndConnectsAgainWithItsNextCall) {
  StartIdle();
  Call();
  RunFor(kTimeoutNs - kAWhileNs);
  EXPECT_EQ(connections(), 1u) << "before its time";
  RunFor(kLateNs - kTimeoutNs + 2 * kAWhileNs);
  EXPECT_EQ(connections(), 0u);
  EXPECT_EQ(told(), 1u);
  EXPECT_EQ(channel_->state(), ChannelState::kIdle);
  EXPECT_NE(channel_->path().status().message().find("nobody had used the connection"),
            absl::string_view::npos)
      << channel_->path().status();
  RunFor(10 * kTimeoutNs);
  EXPECT_EQ(channel_->stats().connects, 1u) << "nobody has asked for a connection";
  Call();
  EXPECT_EQ(connections(), 1u);
  const ChannelStats stats = channel_->stats();
  EXPECT_EQ(stats.connects, 2u);
  EXPECT_EQ(stats.calls_failed + stats.connect_failures, 0u);
  EXPECT_EQ(server_->stats().protocol_errors, 0u);
}

// It has never been answered, which after a loss makes a channel wait before it connects again.
TEST_F(IdleTest, AClientThatOnlySendsOneWayMessagesConnectsAgainWithoutAPause) {
  StartIdle();
  for (uint64_t i = 1; i <= 5; ++i) {
    send_->Notify(MakeData(i, 10), {}, nullptr);
    ASSERT_TRUE(network_.RunUntil([&] { return signals_.numbers.size() == i; }, kAWhileNs)) << i;
    ASSERT_TRUE(RunUntil([&] { return told() == i && connections() == 0; }));
    RunFor(100 * kNsPerUs);
    EXPECT_EQ(channel_->state(), ChannelState::kIdle) << i;
  }
}

TEST_F(IdleTest, AClientThatHasNeverCalledLeavesToo) {
  StartIdle();
  RunFor(2 * kLateNs);
  EXPECT_EQ(connections(), 0u);
  EXPECT_EQ(told(), 1u);
}

// --- who stays -----------------------------------------------------------------------------------

TEST_F(IdleTest, WithoutATimeoutNobodyIsAsked) {
  Start();
  RunFor(100 * kTimeoutNs);
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(told(), 0u);
}

TEST_F(IdleTest, ACallInEachTimeoutKeepsAConnection) {
  StartIdle();
  for (int i = 0; i < 20; ++i) {
    Call();
    RunFor(kTimeoutNs - kAWhileNs);
  }
  EXPECT_EQ(channel_->stats().connects, 1u);
  EXPECT_EQ(told(), 0u);
}

TEST_F(IdleTest, ACallThatRunsKeepsItAndTheTimeBeginsWithItsEnd) {
  StartIdle();
  Outcome held;
  stub_->Hold(Data(), &held.reply, {}, held.Callback());
  RunFor(5 * kTimeoutNs);
  ASSERT_EQ(service_.held.size(), 1u);
  EXPECT_EQ(told(), 0u);
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_EQ(*held.status, absl::OkStatus());
  RunFor(kTimeoutNs - kAWhileNs);
  EXPECT_EQ(told(), 0u);
  RunFor(kLateNs);
  EXPECT_EQ(connections(), 0u);
}

TEST_F(IdleTest, AOneWayMessageThatRunsKeepsIt) {
  StartIdle();
  send_->Hold(Data(), {}, nullptr);
  RunFor(5 * kTimeoutNs);
  ASSERT_EQ(signals_.held.size(), 1u);
  EXPECT_EQ(told(), 0u);
  signals_.Release();
  RunFor(2 * kLateNs);
  EXPECT_EQ(connections(), 0u);
}

TEST_F(IdleTest, AStreamKeepsIt) {
  StartIdle();
  Talk talk = chat_->Talk();
  Served& served = NextTalk();
  RunFor(5 * kTimeoutNs);
  EXPECT_EQ(told(), 0u);
  ASSERT_TRUE(talk.Write(MakeData(3, 10)));
  EXPECT_EQ(Read(served), "3");
  served.Finish(absl::OkStatus());
  EXPECT_EQ(EndOf(talk), absl::OkStatus());
  RunFor(2 * kLateNs);
  EXPECT_EQ(connections(), 0u);
}

TEST_F(IdleTest, ALeaseOnTheServersMemoryKeepsItForGood) {
  StartIdle();
  std::vector<std::byte> owned(100, std::byte{7});
  auto exported = *server_->Export(owned, {});
  auto memory = *RemoteMemory::Open(*channel_, exported->handle());
  auto buffer = *channel_->AllocateBuffer(owned.size());
  for (int i = 0; i < 2; ++i) {
    std::optional<absl::Status> read;
    memory->Read(0, buffer->slice(0, owned.size()),
                 [&](absl::Status status) { read = std::move(status); });
    ASSERT_TRUE(RunUntil([&] { return read.has_value(); }));
    EXPECT_EQ(*read, absl::OkStatus());
    RunFor(20 * kTimeoutNs);
  }
  EXPECT_EQ(channel_->stats().connects, 1u);
  EXPECT_EQ(told(), 0u);
  memory.reset();
  exported.reset();
}

// Its next call would find no connection, and cannot wait for one.
TEST_F(IdleTest, AClientWhoseCallsMayNotWaitKeepsIt) {
  ChannelOptions options;
  options.max_queued_calls = 0;
  StartIdle(options);
  RunFor(5 * kTimeoutNs);
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(told(), 0u);
  Call();
}

// While it connected again, calls that an open connection would have carried were refused.
TEST_F(IdleTest, AClientThatCanQueueFewerCallsThanItMayHaveOutstandingKeepsIt) {
  ChannelOptions options;
  options.max_queued_calls = options.max_outstanding_calls - 1;
  StartIdle(options);
  RunFor(5 * kTimeoutNs);
  EXPECT_EQ(connections(), 1u);
  EXPECT_EQ(told(), 0u);
}

class IdleOnceTest : public OnceTest {};

// Its client left, and the session was renewed by nobody: the server forgot the outcome that the
// call's next attempt asked for.
TEST_F(IdleOnceTest, ACallThatPausesBetweenAttemptsKeepsTheConnection) {
  ServerOptions server = ShortLease();
  server.limits.idle_timeout_us = 1'000'000;
  StartServer(server);
  ChannelOptions options = Once();
  options.retry.initial_backoff_us = options.retry.max_backoff_us = 20'000'000;
  OpenChannel(options);
  RetriedOutcome outcome;
  AddHeld(outcome);
  Interrupt();
  network_.Heal("client", server_node_);
  RetriedOutcome look;  // connects again
  Look(look, kPatient);
  ASSERT_TRUE(RunUntil([&] { return look.done(); }));
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 2u) << "each once";
}

class IdlePeersTest : public PeerTest {};

TEST_F(IdlePeersTest, ServersThatAreConnectedStaySo) {
  PeerMachine& a = Start("a", WithTimeout());
  PeerMachine& b = Start("b", WithTimeout());
  a.Open("b");
  b.Open("a");
  ASSERT_TRUE(BothReady(a, b));
  EXPECT_TRUE(Echo(a, "b").ok());
  RunFor(5 * kTimeoutNs);
  EXPECT_TRUE(Echo(a, "b").ok());
  EXPECT_TRUE(Echo(b, "a").ok());
  EXPECT_EQ(a.to("b").stats().connects, 1u);
  EXPECT_EQ(a.server().stats().told_idle + b.server().stats().told_idle, 0u);
}

// --- a call at the same time ---------------------------------------------------------------------

// What a client sends while the server's word is on its way, or has just come, or while it leaves.
class CrossingTest : public IdleTest {
 protected:
  // Runs until `offset_ns` have passed since the server has asked.
  void RunToTheWord(uint64_t offset_ns) {
    StartIdle();
    SimWire wire;
    wire.delay_ns = kNsPerMs;
    network_.SetWire("server", "client", wire);
    network_.SetWire("client", "server", wire);
    Call();
    ASSERT_TRUE(RunUntil([&] { return told() == 1; }));
    RunFor(offset_ns);
  }
};

class CrossingAtTest : public CrossingTest, public testing::WithParamInterface<uint64_t> {};

TEST_P(CrossingAtTest, NoCallAndNoMessageIsLostOrRunsTwice) {
  RunToTheWord(GetParam());
  Outcome call, large;
  send_->Notify(MakeData(1, 10), {}, nullptr);
  stub_->Echo(MakeData(2, 10), &call.reply, {}, call.Callback());
  stub_->Echo(MakeData(3, 300'000), &large.reply, {}, large.Callback());
  send_->Notify(MakeData(4, 300'000), {}, nullptr);
  ASSERT_TRUE(
      RunUntil([&] { return call.done() && large.done() && signals_.numbers.size() == 2; }));
  EXPECT_EQ(*call.status, absl::OkStatus());
  EXPECT_EQ(*large.status, absl::OkStatus());
  EXPECT_EQ(channel_->stats().calls_failed, 0u);
  EXPECT_LE(channel_->stats().connects, 2u);
  RunFor(2 * kLateNs);
  EXPECT_EQ(connections(), 0u) << "it was not asked again";
  EXPECT_EQ(service_.echoes, 3);
  EXPECT_EQ(signals_.numbers.size(), 2u);
  EXPECT_EQ(server_->stats().one_way_dropped + server_->stats().one_way_failed, 0u);
}

// The word takes a millisecond to the client, and the end of the connection one back.
INSTANTIATE_TEST_SUITE_P(Offsets, CrossingAtTest,
                         testing::Values(0, 100'000, 500'000, 900'000, 990'000, 1'010'000,
                                         1'100'000, 1'500'000, 1'900'000, 2'100'000, 3'000'000));

TEST_F(IdleTest, AOneWayMessageAloneOnItsWayKeepsTheConnection) {
  StartIdle();
  Call();
  SimWire slow;
  slow.delay_ns = 1 * kNsPerSec;
  network_.SetWire("client", "server", slow);
  ASSERT_TRUE(RunUntil([&] { return told() == 1; }));  // a moment before the client hears of it
  send_->Notify(MakeData(1, 10), {}, nullptr);
  RunFor(2 * kNsPerSec);
  EXPECT_EQ(signals_.numbers, std::vector<uint64_t>{1});
  EXPECT_EQ(channel_->stats().connects, 1u);
}

// --- clients of all kinds ------------------------------------------------------------------------

class RawIdleClientTest : public IdleTest {
 protected:
  void Dial(bool leaves_idle) {
    rpc::ClientHello hello;
    hello.set_protocol(kRpcProtocolVersion);
    hello.set_max_outstanding_calls(4);
    hello.set_max_reply_bytes(1000);
    hello.set_leaves_idle(leaves_idle);
    peer_.DialWith(client().transport(), hello);
    ASSERT_TRUE(RunUntil([&] { return peer_.connection != nullptr; }));
  }
  ~RawIdleClientTest() override {
    if (peer_.connection != nullptr) peer_.connection->Close("done");
    RunFor(kAWhileNs);
  }
  RawPeer peer_;
};

TEST_F(RawIdleClientTest, OneThatDoesNotKnowTheWordIsNotTold) {
  StartServer(WithTimeout());
  Dial(/*leaves_idle=*/false);
  RunFor(5 * kTimeoutNs);
  EXPECT_TRUE(peer_.received.empty());
  EXPECT_NE(peer_.connection, nullptr);
  EXPECT_EQ(told(), 0u);
}

TEST_F(RawIdleClientTest, OneThatStaysIsToldAgainWhenItHasBeenInUse) {
  StartServer(WithTimeout());
  Dial(/*leaves_idle=*/true);
  RunFor(5 * kTimeoutNs);
  ASSERT_EQ(peer_.received.size(), 1u);
  EXPECT_EQ(peer_.received[0], Idle(0));
  peer_.Send(Request({0, 1}, kEcho));
  RunFor(5 * kTimeoutNs);
  ASSERT_EQ(peer_.received.size(), 3u) << "the reply, and one word";
  EXPECT_EQ(peer_.received[2], Idle(1));
  EXPECT_NE(peer_.connection, nullptr) << "it is not thrown out";
  EXPECT_EQ(told(), 2u);
}

TEST_F(RawIdleClientTest, AShutdownEndsTheLooks) {
  StartServer(WithTimeout());
  Dial(/*leaves_idle=*/true);
  server_->Shutdown(/*grace_us=*/1'000'000);
  RunFor(5 * kTimeoutNs);
  EXPECT_EQ(peer_.connection, nullptr);
  EXPECT_TRUE(peer_.received.empty());
}

// --- servers of all kinds ------------------------------------------------------------------------

class RawIdleServerTest : public IdleTest {
 protected:
  RawIdleServerTest() {
    ListenOptions options;
    options.hello = OldServerHello({"Echo"}).SerializeAsString();
    listener_ = *server_engine().transport().Listen("sim:server", options, &acceptor_);
    OpenChannel();
    EXPECT_TRUE(RunUntil([&] { return peer().connection != nullptr; }));
  }
  ~RawIdleServerTest() override {
    stub_.reset();
    channel_.reset();
    network_.Settle();
  }
  RawPeer& peer() { return acceptor_.peer; }

  RawAcceptor acceptor_;
  std::unique_ptr<Listener> listener_;
};

TEST_F(RawIdleServerTest, AWordThatDoesNotCountWhatTheClientHasSentIsTooLate) {
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return peer().received.size() == 1; }));
  peer().Send(Reply(CallIdOf(peer().received[0]), 0, 0, ""));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  for (const uint32_t received : {0u, 2u}) {
    peer().Send(Idle(received));
    network_.Settle();
    EXPECT_NE(peer().connection, nullptr) << received;
  }
  peer().Send(Idle(1));
  ASSERT_TRUE(RunUntil([&] { return peer().connection == nullptr; }));
  EXPECT_NE(peer().why.message().find("left its idle connection"), absl::string_view::npos)
      << peer().why;
}

TEST_F(RawIdleServerTest, ACallThatIsOutGoesOnWhateverTheServerSays) {
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return peer().received.size() == 1; }));
  peer().Send(Idle(1));
  network_.Settle();
  EXPECT_FALSE(outcome.done());
  peer().Send(Reply(CallIdOf(peer().received[0]), 0, 0, ""));
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_NE(peer().connection, nullptr);
}

TEST_F(RawIdleServerTest, AWordWhoseFieldsDisagreeEndsTheConnection) {
  Bytes wrong = Idle(0);
  wrong[0] = std::byte{1};
  peer().Send(wrong);
  ASSERT_TRUE(RunUntil([&] { return peer().connection == nullptr; }));
  EXPECT_NE(peer().why.message().find("an idle whose fields disagree"), absl::string_view::npos)
      << peer().why;
}

// --- the option ----------------------------------------------------------------------------------

TEST_F(IdleTest, TheTimeoutHasBounds) {
  for (const uint64_t wrong_us :
       {uint64_t{1}, kShortestIdleTimeoutUs - 1, kLongestIdleTimeoutUs + 1, ~uint64_t{0}}) {
    ServerOptions options;
    options.limits.idle_timeout_us = wrong_us;
    const absl::Status status = Server::Create(server_engine(), options).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong_us;
    EXPECT_NE(status.message().find("ServerLimits::idle_timeout_us is"), absl::string_view::npos)
        << status;
  }
  for (const uint64_t right_us : {uint64_t{0}, kShortestIdleTimeoutUs, kLongestIdleTimeoutUs}) {
    ServerOptions options;
    options.limits.idle_timeout_us = right_us;
    EXPECT_TRUE(Server::Create(server_engine(), options).ok()) << right_us;
  }
}

}  // namespace
}  // namespace weft::test
