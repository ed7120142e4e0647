// What happens to calls and channels when servers are missing, die, or come back.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "rpc/testing/rpc_test.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "weft/status.h"

namespace weft::test {
namespace {

class ConnectionLossTest : public RpcTest {
 protected:
  // A channel that has not connected.
  void OpenLazily(ChannelOptions options = {}) {
    options.connect_at_once = false;
    OpenChannel(options);
  }

  // The server is gone in an orderly way; its address is free again.
  void StopServer() {
    server_.reset();
    network_.Settle();
  }
};

bool Contains(const absl::Status& status, absl::string_view text) {
  return status.message().find(text) != absl::string_view::npos;
}

// --- no server -----------------------------------------------------------------------------------

TEST_F(ConnectionLossTest, OpenSaysThatThereIsNoServer) {
  const absl::Status status = Channel::Open(client(), "sim:nobody").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(Contains(status, "no server at sim:nobody: nobody listens")) << status;
}

TEST_F(ConnectionLossTest, OpenRefusesAddressesThatAreNone) {
  EXPECT_TRUE(absl::IsInvalidArgument(Channel::Open(client(), "nonsense").status()));
}

TEST_F(ConnectionLossTest, CallsToNobodyFailAsSafeToRetry) {
  OpenLazily();
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(Contains(status, "no server at sim:server")) << status;
  EXPECT_TRUE(Contains(status, "not sent, safe to retry")) << status;
}

TEST_F(ConnectionLossTest, ALazyChannelConnectsWithItsFirstCall) {
  OpenLazily();
  EXPECT_FALSE(channel_->path().ok());
  StartServer();
  Data reply;
  EXPECT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_TRUE(channel_->path().ok());
}

// A call that found no place in the queue ended without an attempt to connect: a channel that
// queues none never connected, and after a loss never again.
TEST_F(ConnectionLossTest, AChannelThatQueuesNoCallsConnectsAndConnectsAgain) {
  StartServer();
  ChannelOptions options;
  options.max_queued_calls = 0;
  OpenLazily(options);
  Data request, reply;
  EXPECT_TRUE(absl::IsResourceExhausted(stub_->Echo(request, &reply)));
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(stub_->Echo(request, &reply), absl::OkStatus());
  KillServer();
  network_.RunFor(3 * kNsPerSec);
  StartServer();
  for (int i = 0; i < 3 && channel_->stats().connects < 2; ++i) {
    EXPECT_FALSE(stub_->Echo(request, &reply).ok());
    network_.RunFor(2 * kNsPerSec);
  }
  EXPECT_EQ(stub_->Echo(request, &reply), absl::OkStatus());
}

TEST_F(ConnectionLossTest, APatientCallWaitsForItsServer) {
  OpenLazily();
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {.wait_for_server = true}, outcome.Callback());
  network_.RunFor(3 * kNsPerSec);
  EXPECT_FALSE(outcome.done());
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

TEST_F(ConnectionLossTest, APatientCallEndsAtItsDeadline) {
  OpenLazily();
  Data reply;
  const CallOptions options = {.timeout_us = 300'000, .wait_for_server = true};
  EXPECT_EQ(stub_->Echo(Data(), &reply, options),
            WithDelivery(
                absl::DeadlineExceededError("no reply from sim:server within 300 ms: there was no "
                                            "connection (not sent, safe to retry)"),
                Delivery::kNotSent));
}

TEST_F(ConnectionLossTest, PausesBetweenAttemptsDoubleUpToTheirBound) {
  ChannelOptions options;
  options.min_backoff_us = 10'000;
  options.max_backoff_us = 1'000'000;
  OpenLazily(options);
  Outcome outcome;
  stub_->Echo(Data(), &outcome.reply, {.wait_for_server = true}, outcome.Callback());
  // 10, 20, 40 ... 640 ms of pauses, each at least half of that: eight attempts by then.
  network_.RunFor(1300 * kNsPerMs);
  const uint64_t first_second = channel_->stats().connect_failures;
  EXPECT_GE(first_second, 7u);
  EXPECT_LE(first_second, 10u);
  network_.RunFor(20 * kNsPerSec);
  const uint64_t later = channel_->stats().connect_failures - first_second;
  EXPECT_GE(later, 20u) << "the bound is a second";
  EXPECT_LE(later, 42u) << "and half of it the least";
  channel_.reset();  // before the outcome
}

TEST_F(ConnectionLossTest, AServerOfAnotherProtocolVersionIsRefusedByName) {
  class OtherServer final : public Acceptor, public ConnectionHandler {
    absl::StatusOr<ConnectionHandler*> OnIncoming(Connection&) override { return this; }
    void OnOpen(Connection&) override {}
    void OnMessage(Connection&, ByteSpan) override {}
    void OnClosed(Connection&, const absl::Status&) override {}
  } other;
  rpc::ServerHello hello;
  hello.set_protocol(kRpcProtocolVersion + 1);
  ListenOptions options;
  options.hello = hello.SerializeAsString();
  auto listener = server_engine().transport().Listen("sim:other", options, &other);
  ASSERT_TRUE(listener.ok());
  const absl::Status status = Channel::Open(client(), "sim:other").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(Contains(status,
                       "the server speaks version 2 of the call protocol, this client "
                       "version 1"))
      << status;

  options.hello = "\xFF\xFF no hello at all";
  auto nonsense = server_engine().transport().Listen("sim:nonsense", options, &other);
  ASSERT_TRUE(nonsense.ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Channel::Open(client(), "sim:nonsense").status()));
  network_.Settle();
}

TEST_F(ConnectionLossTest, AClientOfAnotherProtocolVersionIsToldSo) {
  StartServer();
  struct OtherClient final : ConnectionHandler {
    void OnOpen(Connection&) override {}
    void OnMessage(Connection&, ByteSpan) override {}
    void OnClosed(Connection&, const absl::Status& status) override { why = status; }
    absl::Status why;
  } other;
  rpc::ClientHello hello;
  hello.set_protocol(7);
  ConnectOptions options;
  options.hello = hello.SerializeAsString();
  ASSERT_TRUE(client().transport().Connect("sim:server", options, &other).ok());
  ASSERT_TRUE(RunUntil([&] { return !other.why.ok(); }));
  EXPECT_TRUE(Contains(other.why, "the client speaks version 7 of the call protocol")) << other.why;
}

// --- loss ----------------------------------------------------------------------------------------

TEST_F(ConnectionLossTest, KilledServerFailsEveryCallOnceAndSaysThatItMayHaveRun) {
  Start();
  std::vector<Outcome> outcomes(100);
  for (Outcome& outcome : outcomes) {
    stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 100; }));
  network_.Kill("server");
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().calls_failed == 100; }));
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsUnavailable(*outcome.status));
    EXPECT_TRUE(Contains(*outcome.status, "may have run")) << *outcome.status;
  }
}

TEST_F(ConnectionLossTest, RequestsThatNeverLeftAreSafeToRetry) {
  ServerOptions options;
  options.link.window_slots = 4;
  Start({}, options);
  network_.Partition("client", "server");
  // More than four batches of requests: some find no credit, and stay.
  std::vector<Outcome> outcomes(200);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    stub_->Echo(MakeData(i, 1000), &outcomes[i].reply, {}, outcomes[i].Callback());
  }
  network_.Kill("server");
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().calls_failed == 200; }));
  int safe = 0;
  for (const Outcome& outcome : outcomes) {
    ASSERT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsUnavailable(*outcome.status)) << *outcome.status;
    EXPECT_NE(Contains(*outcome.status, "safe to retry"), Contains(*outcome.status, "may have run"))
        << *outcome.status;
    EXPECT_EQ(DeliveryOf(*outcome.status), Contains(*outcome.status, "safe to retry")
                                               ? Delivery::kNotSent
                                               : Delivery::kMayHaveRun);
    safe += Contains(*outcome.status, "safe to retry");
  }
  EXPECT_GT(safe, 0);
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(ConnectionLossTest, TheNextCallFindsARestartedServer) {
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  StopServer();
  StartServer();
  EXPECT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(channel_->stats().connects, 2u);
}

TEST_F(ConnectionLossTest, ARestartedServerMayNumberItsMethodsDifferently) {
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(1, 10), &reply).ok());
  StopServer();

  // The same methods, behind those of another service.
  class First final : public Absent::Service {
  } first;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&first).ok());
  ASSERT_TRUE(server_->AddService(&service_).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  ASSERT_TRUE(stub_->Echo(MakeData(2, 10), &reply).ok());
  EXPECT_EQ(reply.number(), 2u);
  StopServer();  // before `first` goes
}

TEST_F(ConnectionLossTest, CallsThatWaitedAreSentToTheRestartedServer) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start(options);
  Outcome running;
  Outcome waiting;
  stub_->Hold(Data(), &running.reply, {}, running.Callback());
  stub_->Echo(MakeData(5, 1), &waiting.reply, {.wait_for_server = true}, waiting.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  KillServer();
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return waiting.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*running.status)) << *running.status;
  EXPECT_TRUE(waiting.status->ok()) << *waiting.status;
  EXPECT_EQ(waiting.reply.number(), 5u);
}

TEST_F(ConnectionLossTest, ACallbackOfALostCallMayRetryAtOnce) {
  Start();
  Outcome retried;
  Outcome first;
  stub_->Hold(Data(), &first.reply, {}, [&](const absl::Status& status) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    stub_->Echo(MakeData(3, 3), &retried.reply, {.wait_for_server = true}, retried.Callback());
  });
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  KillServer();
  StartServer();
  ASSERT_TRUE(RunUntil([&] { return retried.done(); }));
  EXPECT_TRUE(retried.status->ok()) << *retried.status;
}

TEST_F(ConnectionLossTest, APartitionEndsCallsAfterTheLifelinesTimeout) {
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  network_.Partition("client", "server");
  const absl::Status status = stub_->Echo(Data(), &reply);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  network_.Heal("client", "server");
  EXPECT_TRUE(
      stub_->Echo(Data(), &reply, {.timeout_us = 10'000'000, .wait_for_server = true}).ok());
}

TEST_F(ConnectionLossTest, HandlersOfALostClientAreToldAndMayFinishIntoTheVoid) {
  Start();
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  network_.Kill("client");
  ASSERT_TRUE(RunUntil([&] { return service_.held.front().context().cancelled(); }));
  EXPECT_EQ(server_->stats().connections, 1u) << "kept for the handler";
  service_.Release();
  EXPECT_EQ(server_->stats().connections, 0u);
  EXPECT_EQ(server_->stats().running, 0u);
  channel_.reset();  // before the outcome
}

}  // namespace
}  // namespace weft::test
