// What a server promises to those who write handlers, and how it ends.
#include "rpc/server/server.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rpc/testing/rpc_test.h"
#include "rpc/testing/ticks.h"
#include "rpc/wire/frame.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using ServerTest = RpcTest;

// An executor that runs tasks when the test says so.
class ManualExecutor final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    if (tasks.size() >= capacity) return false;
    tasks.push_back(std::move(task));
    return true;
  }
  void RunAll() {
    for (Function<void()>& task : std::exchange(tasks, {})) task();
  }
  std::vector<Function<void()>> tasks;
  size_t capacity = 1000;
};

// --- setup ---------------------------------------------------------------------------------------

TEST_F(ServerTest, AServiceCanBeAddedOnce) {
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&service_).ok());
  EXPECT_EQ(server_->AddService(&service_),
            absl::AlreadyExistsError("service weft.test.Probe has been added before"));
}

TEST_F(ServerTest, ServicesAreFixedOnceTheServerListens) {
  StartServer();
  ProbeService late;
  EXPECT_TRUE(absl::IsFailedPrecondition(server_->AddService(&late)));
}

TEST_F(ServerTest, AnAddressInUseIsAnError) {
  StartServer();
  auto other = *Server::Create(server_engine());
  EXPECT_TRUE(absl::IsAlreadyExists(other->Listen("sim:server")));
}

TEST_F(ServerTest, OneServerMayListenAtSeveralAddresses) {
  StartServer();
  ASSERT_TRUE(server_->Listen("sim:second").ok());
  EXPECT_EQ(server_->address(), "sim:server");
  auto channel = *Channel::Open(client(), "sim:second");
  Data reply;
  EXPECT_TRUE(Probe::Stub(*channel).Echo(Data(), &reply).ok());
}

TEST_F(ServerTest, AServerCanGoWithoutEverHavingListened) {
  server_ = *Server::Create(server_engine());
  server_.reset();
}

// --- handlers ------------------------------------------------------------------------------------

TEST_F(ServerTest, ADroppedCallFailsNamingItsMethod) {
  Start();
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  service_.held.clear();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status,
            WithDelivery(absl::InternalError("the handler of Hold dropped the call"),
                         Delivery::kMayHaveRun));
}

TEST_F(ServerTest, RequestAndReplyStayWithAHeldCall) {
  Start();
  std::vector<Outcome> outcomes(50);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    stub_->Hold(MakeData(i, 100 * i), &outcomes[i].reply, {}, outcomes[i].Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 50; }));
  for (size_t i = 0; i < outcomes.size(); ++i) {
    EXPECT_EQ(service_.held[i].request().payload(), MakeData(i, 100 * i).payload());
  }
  while (!service_.held.empty()) service_.Release();
  ASSERT_TRUE(RunUntil([&] { return channel_->stats().calls_ok == 50; }));
  for (size_t i = 0; i < outcomes.size(); ++i) EXPECT_EQ(outcomes[i].reply.number(), i);
}

TEST_F(ServerTest, TheReplyIsEmptyWhateverTheSlotWasUsedForBefore) {
  // A slot keeps its messages from call to call; nothing of the earlier one may show.
  Start();
  Data reply;
  ASSERT_TRUE(stub_->Echo(MakeData(9, 500), &reply).ok());
  Size size;
  ASSERT_TRUE(stub_->Make(size, &reply).ok());
  EXPECT_EQ(reply.ByteSizeLong(), 0u);
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(reply.ByteSizeLong(), 0u);
  ASSERT_TRUE(stub_->Echo(MakeData(1, 100'000), &reply).ok());
  ASSERT_TRUE(stub_->Echo(Data(), &reply).ok());
  EXPECT_EQ(reply.ByteSizeLong(), 0u);
}

// A call slot of each connection had an arena of its own, cold for all who come after others. Now
// who comes next has the memory that was used last, and two at once have two.
TEST_F(ServerTest, ConnectionsShareTheMemoryOfCallsThatAreOver) {
  Start();
  auto second_channel = *Channel::Open(client(), "sim:server");
  Probe::Stub second(*second_channel);
  const auto hold = [&](Probe::Stub& stub, uint64_t number, Outcome& outcome) {
    const size_t held = service_.held.size();
    stub.Hold(MakeData(number, 10 * number), &outcome.reply, {}, outcome.Callback());
    EXPECT_TRUE(RunUntil([&] { return service_.held.size() == held + 1; }));
    const Data& request = service_.held.back().request();
    EXPECT_EQ(request.payload(), MakeData(number, 10 * number).payload());
    return &request;
  };
  const auto release = [&](Outcome& outcome, uint64_t number) {
    service_.Release();
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.reply.number(), number);
  };
  Outcome outcomes[4];
  const Data* const first = hold(*stub_, 1, outcomes[0]);
  release(outcomes[0], 1);
  EXPECT_EQ(hold(second, 2, outcomes[1]), first);
  EXPECT_NE(hold(*stub_, 3, outcomes[2]), first);
  release(outcomes[1], 2);
  EXPECT_EQ(hold(*stub_, 4, outcomes[3]), first);
  release(outcomes[2], 3);
  release(outcomes[3], 4);
}

TEST_F(ServerTest, ContextNamesMethodAndCaller) {
  Start();
  Outcome outcome;
  stub_->Hold(Data(), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  ServerContext& context = service_.held.front().context();
  EXPECT_EQ(context.method().name, "Hold");
  EXPECT_EQ(context.path().peer, "client");
  EXPECT_FALSE(context.cancelled());
  channel_.reset();  // before the outcome
}

TEST_F(ServerTest, HandlersCanRunOnAnExecutor) {
  ManualExecutor executor;
  ServerOptions options;
  options.executor = &executor;
  Start({}, options);
  Outcome outcome;
  stub_->Echo(MakeData(4, 40), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return executor.tasks.size() == 1; }));
  EXPECT_EQ(service_.echoes, 0);
  executor.RunAll();
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
  EXPECT_EQ(outcome.reply.number(), 4u);
}

TEST_F(ServerTest, AFullExecutorIsToldToTheCaller) {
  ManualExecutor executor;
  executor.capacity = 0;
  server_ = *Server::Create(server_engine());
  ASSERT_TRUE(server_->AddService(&service_, &executor).ok());
  ASSERT_TRUE(server_->Listen("sim:server").ok());
  OpenChannel();
  Data reply;
  const absl::Status status = stub_->Echo(Data(), &reply);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(ServerTest, AnExecutorThatIsTooLateDoesNotRunTheHandler) {
  ManualExecutor executor;
  ServerOptions options;
  options.executor = &executor;
  Start({}, options);
  Data reply;
  EXPECT_TRUE(absl::IsDeadlineExceeded(stub_->Echo(Data(), &reply, {.timeout_us = 5000})));
  network_.Settle();
  ASSERT_EQ(executor.tasks.size(), 1u);
  executor.RunAll();
  network_.Settle();
  EXPECT_EQ(service_.echoes, 0);
  EXPECT_EQ(channel_->stats().outstanding, 0u) << "the server has answered all the same";
}

TEST_F(ServerTest, TheBytesOfRunningRequestsAreBounded) {
  ServerOptions options;
  options.max_running_bytes = 10'000;
  Start({}, options);
  std::vector<Outcome> outcomes(3);
  for (Outcome& outcome : outcomes) {
    stub_->Hold(MakeData(1, 4000), &outcome.reply, {}, outcome.Callback());
  }
  ASSERT_TRUE(RunUntil([&] { return outcomes[2].done(); }));
  EXPECT_EQ(
      *outcomes[2].status,
      WithDelivery(absl::ResourceExhaustedError(
                       "requests and replies of 8010 bytes are running; this server "
                       "takes 10000 at most, and of this client, which has 8010, no more than is "
                       "left to others (not run, safe to retry)"),
                   Delivery::kNotSent));
  service_.Release();
  service_.Release();
  ASSERT_TRUE(RunUntil([&] { return outcomes[1].done(); }));
  EXPECT_EQ(server_->stats().running_bytes, 0u);
  Data reply;
  EXPECT_TRUE(stub_->Echo(MakeData(1, 9000), &reply).ok());
}

// --- the end -------------------------------------------------------------------------------------

TEST_F(ServerTest, ShutdownLetsRunningCallsFinish) {
  Start();
  Outcome outcome;
  stub_->Hold(MakeData(6, 6), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  // Shutdown drives its engine while it waits: the release comes from inside.
  const At release(server_engine(), 10 * kNsPerMs, [&] { service_.Release(); });
  server_->Shutdown(1'000'000);
  EXPECT_TRUE(service_.held.empty());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_TRUE(outcome.status->ok()) << *outcome.status;
}

TEST_F(ServerTest, ShutdownRefusesNewRequestsAsSafeToRetry) {
  Start();
  Outcome held;
  stub_->Hold(Data(), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  // It is under way when the server tells its clients to leave. (Later ones are not sent:
  // rpc/drain_test.cc.)
  Outcome late;
  stub_->Echo(Data(), &late.reply, {}, late.Callback());
  const At release(server_engine(), 10 * kNsPerMs, [&] { service_.Release(); });
  server_->Shutdown(1'000'000);
  ASSERT_TRUE(RunUntil([&] { return late.done() && held.done(); }));
  EXPECT_EQ(
      *late.status,
      WithDelivery(absl::UnavailableError("the server is shutting down (not run, safe to retry)"),
                   Delivery::kNotSent));
  EXPECT_TRUE(held.status->ok()) << *held.status;
  EXPECT_EQ(service_.echoes, 0);
}

TEST_F(ServerTest, ShutdownCanBeRepeatedAndWaitThenReturns) {
  Start();
  server_->Shutdown(0);
  server_->Wait();
  server_->Shutdown(0);
}

}  // namespace
}  // namespace weft::test
