// Servers with limits: what is refused, how, and that every call that was admitted gives its place
// back, however it ends. On a simulated network.
#include "rpc/server/server_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/once_test.h"
#include "rpc/testing/raw_peer.h"
#include "rpc/testing/rpc_test.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/stream_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr char kHold[] = "weft.test.Probe/Hold";

void ExpectRefused(const absl::Status& status, std::string_view text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent) << status;
  EXPECT_EQ(ToStd(status.message()), text);
}

class ServerLimitsTest : public RpcTest {
 protected:
  void StartLimited(const ServerLimits& limits, Executor* executor = nullptr) {
    ServerOptions options;
    options.limits = limits;
    options.executor = executor;
    Start({}, options);
  }
  ServerStats Stats() { return server_->stats(); }

  Outcome& Hold(const CallOptions& options = {}) {
    Outcome& outcome = outcomes_.emplace_back();
    stub_->Hold(MakeData(1, 10), &outcome.reply, options, outcome.Callback());
    return outcome;
  }
  // One that its handler has now.
  Outcome& Held(const CallOptions& options = {}) {
    const size_t before = service_.held.size();
    Outcome& outcome = Hold(options);
    EXPECT_TRUE(RunUntil([&] { return service_.held.size() > before; }));
    return outcome;
  }
  absl::Status EndOf(Outcome& outcome) {
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.completions, 1);
    return outcome.done() ? *outcome.status : absl::UnknownError("it has not ended");
  }
  // The only place is free: a call has it, and gives it back.
  void ExpectPlaceIsFree() {
    Outcome& outcome = Held();
    service_.Release();
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  }
  void ExpectPlaceIsTaken() {
    EXPECT_EQ(EndOf(Hold()).code(), absl::StatusCode::kResourceExhausted);
  }

  std::deque<Outcome> outcomes_;
};

// --- connections --------------------------------------------------------------------------------

// Clients that make connections and nothing else.
class ServerConnectionsTest : public RpcTest {
 protected:
  ~ServerConnectionsTest() override {
    for (RawPeer& peer : peers_) {
      if (peer.connection != nullptr) peer.connection->Close("done");
    }
    EXPECT_TRUE(RunUntil([&] {
      return std::all_of(peers_.begin(), peers_.end(),
                         [](const RawPeer& peer) { return peer.connection == nullptr; });
    }));
  }
  // One more connection of this node, or why it has none.
  RawPeer& Dial(const std::string& node) {
    RawPeer& peer = peers_.emplace_back();
    peer.Dial(CoreOf(network_.Node(node)).transport());
    EXPECT_TRUE(RunUntil([&] { return peer.connection != nullptr || !peer.why.ok(); }));
    return peer;
  }
  void ExpectServedAt(const std::string& node) {
    auto channel = Channel::Open(CoreOf(network_.Node(node)), "sim:server");
    ASSERT_TRUE(channel.ok()) << channel.status();
    Data reply;
    EXPECT_TRUE(Probe::Stub(**channel).Echo(Data(), &reply).ok()) << node;
  }

  // A call from a connection of this node's, which is closed while its handler runs. False: it was
  // refused; left_.back() has the status.
  bool LeaveACallBehind(const std::string& node) {
    Engine& engine = network_.Node(node);
    const auto channel = Channel::Open(CoreOf(engine), "sim:server", {.connect_at_once = false});
    Outcome& outcome = left_.emplace_back();
    const size_t before = service_.held.size();
    Probe::Stub(**channel).Hold(Data(), &outcome.reply, {}, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return outcome.done() || service_.held.size() > before; }));
    return !outcome.done();
  }
  void EndCallsThatWereLeft() {
    while (!service_.held.empty()) service_.Release();
    ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 0; }));
  }

  std::deque<RawPeer> peers_;
  std::deque<Outcome> left_;
};

TEST_F(ServerConnectionsTest, OneWhoTakesAllHeCanLeavesRoomToOthers) {
  ServerOptions options;
  options.max_connections = 16;
  StartServer(options);
  for (int i = 0; i < 14; ++i) ASSERT_NE(Dial("greedy").connection, nullptr) << peers_.back().why;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(absl::IsResourceExhausted(Dial("greedy").why)) << peers_.back().why;
  }
  EXPECT_EQ(server_->stats().connections, 14u);
  EXPECT_NE(Dial("other").connection, nullptr) << peers_.back().why;
  ExpectServedAt("a third");
  EXPECT_TRUE(absl::IsResourceExhausted(Dial("greedy").why)) << "it has more than its share";
  // He gets his places back when he closes.
  for (int i = 0; i < 2; ++i) peers_[i].connection->Close("enough");
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections == 13; }));
  EXPECT_NE(Dial("greedy").connection, nullptr) << peers_.back().why;
}

TEST_F(ServerConnectionsTest, OneHasNoMoreThanItsNumberAndComesAgain) {
  ServerOptions options;
  options.max_connections_of_one = 2;
  StartServer(options);
  RawPeer& first = Dial("greedy");
  ASSERT_NE(first.connection, nullptr);
  ASSERT_NE(Dial("greedy").connection, nullptr);
  EXPECT_TRUE(absl::IsResourceExhausted(Dial("greedy").why)) << peers_.back().why;
  auto channel =
      Channel::Open(CoreOf(network_.Node("greedy")), "sim:server", {.connect_at_once = false});
  ASSERT_TRUE(channel.ok()) << channel.status();
  Outcome outcome;
  Probe::Stub stub(**channel);
  stub.Echo(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  // To a call it is a server that it cannot have now.
  EXPECT_TRUE(absl::IsUnavailable(*outcome.status)) << *outcome.status;
  EXPECT_NE(outcome.status->ToString().find("ListenOptions::max_connections_of_one"),
            std::string::npos)
      << *outcome.status;
  ExpectServedAt("other");
  // As a channel whose server is full comes again by itself.
  first.connection->Close("enough");
  ASSERT_TRUE(RunUntil([&] { return server_->stats().connections <= 2; }));
  network_.RunFor(2 * kNsPerSec);  // longer than it pauses
  Data reply;
  EXPECT_TRUE(stub.Echo(Data(), &reply).ok());
}

// A client that closed its connection had its place back at once, and the server kept the calls
// that it had left behind for as long as their handlers ran: who came again and again made it keep
// any number of them.
TEST_F(ServerConnectionsTest, WhoLeavesRunningCallsBehindFindsAnEndOfPlaces) {
  ServerOptions options;
  options.max_connections = 2;
  StartServer(options);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(LeaveACallBehind(StrCat("client", i))) << *left_.back().status;
  }
  EXPECT_EQ(server_->stats().connections, 4u);
  EXPECT_FALSE(LeaveACallBehind("client4"));
  EXPECT_NE(left_.back().status->ToString().find("whose calls still run, for which both numbers "
                                                 "are doubled: the server has all 4 connections"),
            std::string::npos)
      << *left_.back().status;
  EndCallsThatWereLeft();
  ExpectServedAt("other");
}

// Nobody asked whose the connections were that had closed while their calls ran: one client that
// came again and again, and never had more of them open than its number, filled all the places that
// there are of those, and the server refused everybody until the handlers had ended.
TEST_F(ServerConnectionsTest, WhoLeavesRunningCallsBehindLeavesPlacesToOthers) {
  ServerOptions options;
  options.max_connections = 16;
  options.max_connections_of_one = 2;
  StartServer(options);
  for (int i = 0; i < 40; ++i) LeaveACallBehind("greedy");
  EXPECT_EQ(service_.held.size(), 16u) << "of 32, where more than 16 are not of one with a number";
  EXPECT_NE(left_.back().status->ToString().find("16 connections of this client, and takes 4"),
            std::string::npos)
      << *left_.back().status;
  ExpectServedAt("other");
  EndCallsThatWereLeft();
  ExpectServedAt("greedy");
}

// The same, of one that has no number.
TEST_F(ServerConnectionsTest, WhoLeavesRunningCallsBehindHasNoneOfTheReserve) {
  ServerOptions options;
  options.max_connections = 16;
  StartServer(options);
  for (int i = 0; i < 40; ++i) LeaveACallBehind("greedy");
  EXPECT_EQ(service_.held.size(), 28u) << "of 32, an eighth is kept for others";
  ExpectServedAt("other");
  EndCallsThatWereLeft();
}

TEST_F(ServerConnectionsTest, MoreThanThereAreIsNoNumberForOne) {
  ServerOptions options;
  options.max_connections_of_one = options.max_connections + 1;
  server_ = *Server::Create(server_engine(), options);
  ASSERT_TRUE(server_->AddService(&service_).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(server_->Listen("sim:server")));
}

// --- what is refused ----------------------------------------------------------------------------

TEST_F(ServerLimitsTest, WhatIsOverAMethodsLimitIsRefused) {
  StartLimited({.per_method = {{kHold, 2}}});
  Held();
  Held();
  ExpectRefused(EndOf(Hold()),
                "method weft.test.Probe/Hold has 2 calls running, as many as "
                "ServerLimits::per_method allows (not run, safe to retry elsewhere)");
  Data reply;
  EXPECT_TRUE(stub_->Echo(Data(), &reply).ok()) << "another method";
  EXPECT_EQ(Stats().refused_by_method_limit, 1u);
  EXPECT_EQ(Stats().refused, 1u);
  EXPECT_EQ(Stats().requests, 4u);
}

TEST_F(ServerLimitsTest, WhatIsOverAClientsLimitIsRefused) {
  StartLimited({.per_client = 1});
  Held();
  ExpectRefused(EndOf(Hold()),
                "this client has 1 calls running, as many as ServerLimits::per_client allows "
                "(not run, safe to retry elsewhere)");
  auto other = *Channel::Open(client(), "sim:server");
  Data reply;
  EXPECT_TRUE(Probe::Stub(*other).Echo(Data(), &reply).ok()) << "another connection of nobody";
  EXPECT_EQ(Stats().refused_by_client_limit, 1u);
}

TEST_F(ServerLimitsTest, WhatIsOverTheAdaptiveLimitIsRefused) {
  StartLimited({.adaptive = true, .adaptive_most = 3});
  EXPECT_EQ(Stats().adaptive_limit, 3u);
  for (int i = 0; i < 3; ++i) Held();
  ExpectRefused(EndOf(Hold()),
                "the server is overloaded: 3 calls are running, and ServerLimits::adaptive allows "
                "3 now (not run, safe to retry elsewhere)");
  EXPECT_EQ(Stats().refused_by_adaptive_limit, 1u);
  service_.Release();
  Held();
}

TEST_F(ServerLimitsTest, ARefusedCallIsNotDecoded) {
  StartLimited({.per_method = {{kHold, 1}}});
  Held();
  Outcome large;
  stub_->Hold(MakeData(1, 5 << 20), &large.reply, {}, large.Callback());
  EXPECT_EQ(EndOf(large).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(Stats().running_bytes, 1000u);
  ClientContext context;
  ASSERT_TRUE(context.SetAttachment(absl::Cord(std::string(100'000, 'a'))).ok());
  EXPECT_EQ(EndOf(Hold({.context = &context})).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LT(Stats().running_bytes, 1000u);
}

TEST_F(ServerLimitsTest, AServerWithoutLimitsSaysSo) {
  Start();
  EXPECT_EQ(Stats().adaptive_limit, 0u);
}

// --- setup --------------------------------------------------------------------------------------

TEST_F(ServerLimitsTest, LimitsThatMakeNoSenseAreRefusedByCreate) {
  ServerOptions options;
  options.limits.per_method = {{"Hold", 1}};
  EXPECT_TRUE(absl::IsInvalidArgument(Server::Create(server_engine(), options).status()));
}

TEST_F(ServerLimitsTest, AMethodThatNoServiceHasIsRefusedByListen) {
  ServerOptions options;
  options.limits.per_method = {{kHold, 1}};
  server_ = *Server::Create(server_engine(), options);
  const absl::Status unknown = server_->Listen("sim:server");
  EXPECT_TRUE(absl::IsInvalidArgument(unknown)) << unknown;
  ASSERT_TRUE(server_->AddService(&service_).ok());
  EXPECT_TRUE(server_->Listen("sim:server").ok()) << "now one has it";
  OpenChannel();
  Held();
  ExpectPlaceIsTaken();
}

TEST_F(ServerLimitsTest, ASecondAddressForgetsNoCall) {
  StartLimited({.per_method = {{kHold, 1}}, .adaptive = true});
  Held();
  ASSERT_TRUE(server_->Listen("sim:second").ok());
  ExpectPlaceIsTaken();
  service_.Release();
  ExpectPlaceIsFree();
}

// --- the place is given back --------------------------------------------------------------------

class PlaceTest : public ServerLimitsTest {
 protected:
  // Each of the three limits is one call.
  PlaceTest() {
    limits_.per_client = 1;
    limits_.per_method = {{kHold, 1}};
    limits_.adaptive = true;
    limits_.adaptive_most = 1;
  }
  ServerLimits limits_;
};

TEST_F(PlaceTest, IsGivenBackByReplyAndErrorAndBySilence) {
  StartLimited(limits_);
  ExpectPlaceIsFree();
  Outcome& failing = Held();
  service_.Release(absl::NotFoundError("no such thing"));
  EXPECT_EQ(EndOf(failing).code(), absl::StatusCode::kNotFound);
  Outcome& dropped = Held();
  service_.held.clear();
  EXPECT_EQ(EndOf(dropped).code(), absl::StatusCode::kInternal);
  Data reply;
  for (int i = 0; i < 3; ++i)
    EXPECT_TRUE(stub_->Echo(Data(), &reply).ok()) << "it ends in its turn";
  EXPECT_FALSE(stub_->Missing(Data(), &reply).ok());
  ExpectPlaceIsFree();
}

TEST_F(PlaceTest, IsGivenBackWhenTheHandlerEndsAndNotBefore) {
  StartLimited(limits_);
  ClientContext context;
  Outcome& cancelled = Held({.context = &context});
  EXPECT_TRUE(context.Cancel().ok());
  EXPECT_EQ(EndOf(cancelled).code(), absl::StatusCode::kCancelled);
  ExpectPlaceIsTaken();
  service_.Release();
  ExpectPlaceIsFree();
  Outcome& late = Held({.timeout_us = 1000});
  EXPECT_EQ(EndOf(late).code(), absl::StatusCode::kDeadlineExceeded);
  ExpectPlaceIsTaken();
  service_.Release();
  ExpectPlaceIsFree();
}

TEST_F(PlaceTest, IsGivenBackWhenAHandlerEndsWhoseClientIsGone) {
  StartLimited(limits_);
  Held();
  stub_.reset();
  channel_.reset();
  ASSERT_TRUE(RunUntil([&] { return outcomes_.back().done(); }));
  OpenChannel();
  ExpectPlaceIsTaken();
  service_.Release();
  ExpectPlaceIsFree();
}

TEST_F(PlaceTest, IsGivenBackByRequestsThatAreRefusedForOtherReasons) {
  ServerOptions options;
  options.limits = limits_;
  options.max_request_bytes = 1000;
  Start({}, options);
  for (int i = 0; i < 3; ++i) {
    Outcome outcome;
    stub_->Hold(MakeData(1, 1000), &outcome.reply, {}, outcome.Callback());
    EXPECT_EQ(EndOf(outcome).code(), absl::StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(Stats().refused_by_client_limit, 0u);
  ExpectPlaceIsFree();
}

// ~Admission() looks that nothing counts any more.
TEST_F(PlaceTest, IsGivenBackByTheHandlersOfAServerThatEnds) {
  StartLimited(limits_);
  service_.look = [this](ServerContext& context) {
    context.OnCancel([this] { service_.Release(absl::CancelledError()); });
  };
  Outcome& held = Held();
  server_.reset();
  EXPECT_TRUE(absl::IsUnavailable(EndOf(held)));
}

TEST_F(PlaceTest, IsGivenBackByAHandlerOnAnotherThread) {
  StartLimited(limits_);
  for (int i = 0; i < 20; ++i) {
    Outcome& outcome = Held();
    std::thread([this] { service_.Release(); }).join();
    EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  }
  ExpectPlaceIsFree();
}

class NoRoom final : public Executor {
 public:
  bool Run(Function<void()>) override { return false; }
};

TEST_F(PlaceTest, IsGivenBackByAnExecutorWithoutRoom) {
  NoRoom executor;
  StartLimited(limits_, &executor);
  Data reply;
  for (int i = 0; i < 3; ++i) {
    const absl::Status full = stub_->Echo(Data(), &reply);
    EXPECT_NE(ToStd(full.message()).find("executor has no room"), std::string_view::npos) << full;
  }
  EXPECT_EQ(Stats().refused_by_client_limit, 0u);
}

// --- one-way messages, streams, calls that run exactly once -------------------------------------

class LimitedSignalsTest : public ServerLimitsTest {
 protected:
  ~LimitedSignalsTest() override {
    signals_.held.clear();
    channel_.reset();
    server_.reset();
  }
  SignalService signals_;
};

TEST_F(LimitedSignalsTest, MessagesOverALimitAreDropped) {
  ServerOptions options;
  options.limits.per_method = {{"weft.test.Signals/Hold", 1}};
  options.limits.adaptive = true;
  server_ = *Server::Create(server_engine(), options);
  ASSERT_TRUE(server_->AddService(&signals_).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel();
  Signals::Stub stub(*channel_);
  for (int round = 1; round <= 3; ++round) {
    EXPECT_TRUE(stub.Hold(Data()).ok());
    EXPECT_TRUE(stub.Hold(Data()).ok());
    ASSERT_TRUE(RunUntil([&] { return Stats().one_way_dropped == static_cast<uint64_t>(round); }));
    EXPECT_EQ(signals_.held.size(), 1u);
    signals_.Release();
  }
  EXPECT_EQ(Stats().refused_by_method_limit, 3u);
  EXPECT_EQ(Stats().one_way_failed, 0u);
}

using LimitedStreamsTest = StreamTest;

TEST_F(LimitedStreamsTest, StreamsCountUntilTheirHandlersEnd) {
  ServerOptions options;
  options.limits.per_method = {{"weft.test.Streams/Talk", 1}};
  options.limits.adaptive = true;
  options.limits.adaptive_most = 1;
  StartStreams({}, options);
  for (int round = 0; round < 3; ++round) {
    Talk first = chat_->Talk();
    Served& served = NextTalk();
    Talk second = chat_->Talk();
    EXPECT_EQ(Read(second), "end");
    EXPECT_TRUE(absl::IsResourceExhausted(second.Finish())) << second.Finish();
    Data reply;
    EXPECT_TRUE(stub_->Echo(Data(), &reply).ok()) << "streams are not the adaptive limit's";
    served.Finish(absl::OkStatus());
    EXPECT_EQ(Read(first), "end");
    EXPECT_TRUE(first.Finish().ok());
  }
  EXPECT_EQ(server_->stats().refused_by_method_limit, 3u);
}

class LimitedOnceTest : public OnceTest {
 protected:
  void StartLimited() {
    ServerOptions options;
    options.limits.per_client = 1;
    options.limits.per_method = {{"weft.test.Store/Add", 1}};
    options.limits.adaptive = true;
    options.limits.adaptive_most = 1;
    StartServer(options);
    OpenChannel(Once());
  }
};

// The retry of a call was refused, because its own first attempt was running.
TEST_F(LimitedOnceTest, AnAttemptIsNotRefusedForTheOneBefore) {
  StartLimited();
  RetriedOutcome outcome;
  AddHeld(outcome);
  LoseConnection();
  ASSERT_TRUE(RunUntil([&] { return Stats().repeated == 1; }));
  service_.End(0);
  EXPECT_EQ(EndOf(outcome), absl::OkStatus());
  EXPECT_EQ(service_.seen.size(), 1u);
  EXPECT_EQ(Stats().refused_by_method_limit + Stats().refused_by_client_limit +
                Stats().refused_by_adaptive_limit,
            0u);
  RetriedOutcome next;
  Add(next);
  EXPECT_EQ(EndOf(next), absl::OkStatus()) << "the place is free";
}

TEST_F(LimitedOnceTest, WhatIsOverALimitHasNotRunAndLeavesNoRecord) {
  StartLimited();
  RetriedOutcome first;
  AddHeld(first);
  RetriedOutcome second;
  Add(second);
  ASSERT_TRUE(RunUntil([&] { return Stats().refused > 0; }));
  EXPECT_EQ(service_.seen.size(), 1u);
  service_.End(0);
  EXPECT_EQ(EndOf(first), absl::OkStatus());
  ASSERT_TRUE(RunUntil([&] { return second.done(); }));
  EXPECT_TRUE(second.status.ok() || absl::IsResourceExhausted(second.status)) << second.status;
  ExpectNothingIsLeft();
}

}  // namespace
}  // namespace weft::test
