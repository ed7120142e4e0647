// Calls between real engines, over every path of this machine.
#include "transport/network.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/client_context.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/two_threads.h"
#include "rpc/wire/frame.h"

namespace weft::test {
namespace {

// One server with a thread of its own; channels over the path that the parameter names.
//
// Neither side gives the other up for its silence: with ThreadSanitizer on a busy machine, an
// engine that parsed 64 MiB was silent for longer than 3 s, and the largest message failed.
class NetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    ServerOptions options;
    options.link.peer_timeout_ns = 0;
    server_ = *Server::Create(options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }

  std::unique_ptr<Channel> Open(ChannelOptions options = {}) {
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    auto channel = Channel::Open(server_->address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    return *std::move(channel);
  }

  // Calls that a test has left behind are dropped on the server's thread, which made them.
  void TearDown() override {
    if (server_ == nullptr) return;
    Data reply;
    if (auto channel = Channel::Open(server_->address()); channel.ok()) {
      EXPECT_TRUE(Probe::Stub(**channel).DropHeld(Data(), &reply).ok());
    }
  }

  ProbeService service_;
  std::unique_ptr<Server> server_;
};

TEST_P(NetworkTest, BlockingCallsReturnTheirReplies) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  EXPECT_EQ(channel->path()->kind, GetParam());
  for (uint64_t i = 0; i < 1000; ++i) {
    Data reply;
    const absl::Status status = stub.Echo(MakeData(i, i), &reply);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_EQ(reply.number(), i);
    ASSERT_EQ(reply.payload().size(), i);
  }
}

TEST_P(NetworkTest, MessagesOfEverySizeArriveUnchanged) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  for (size_t bytes = 0; bytes <= kMaxPayloadBytes; bytes = bytes * 4 + 1) {
    for (size_t size : {bytes, bytes + 1}) {
      Data reply;
      const Data request = MakeData(size, size);
      const absl::Status status = stub.Echo(request, &reply);
      ASSERT_TRUE(status.ok()) << size << ": " << status;
      ASSERT_TRUE(reply.payload() == request.payload()) << size;
    }
  }
}

TEST_P(NetworkTest, TheLargestMessageTravels) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  Data request;
  request.mutable_payload()->assign(kMaxPayloadBytes - 5, 'x');
  Data reply;
  const absl::Status status = stub.Echo(request, &reply);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_TRUE(reply.payload() == request.payload());
}

TEST_P(NetworkTest, SixtyFourOutstandingCallsKeepTheirOrderAndReplies) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  constexpr uint64_t kCalls = 20'000;
  struct Loop {
    Data request;
    Data reply;
  };
  std::vector<Loop> loops(64);
  uint64_t started = 0;
  uint64_t ended = 0;
  Waiter all;
  std::function<void(Loop&)> next = [&](Loop& loop) {
    loop.request.set_number(started++);
    stub.Echo(loop.request, &loop.reply, {}, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(loop.reply.number(), loop.request.number());
      if (++ended == kCalls) CoreOf(channel->engine()).Finish(all);
      if (started < kCalls) next(loop);
    });
  };
  ASSERT_TRUE(CoreOf(channel->engine()).Enter());
  for (Loop& loop : loops) next(loop);
  EXPECT_TRUE(CoreOf(channel->engine()).Wait(all));
  CoreOf(channel->engine()).Leave();
}

TEST_P(NetworkTest, SeveralThreadsShareOneChannel) {
  auto channel = Open();
  constexpr int kThreads = 4;
  constexpr uint64_t kCallsEach = 500;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Probe::Stub stub(*channel);
      for (uint64_t i = 0; i < kCallsEach; ++i) {
        const Data request = MakeData(t * kCallsEach + i, i);
        Data reply;
        const absl::Status status = stub.Echo(request, &reply);
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(reply.number(), request.number());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(channel->stats().calls_ok, kThreads * kCallsEach);
}

TEST_P(NetworkTest, ThreadsCallWhileAnotherDrivesItsOwnEngine) {
  EngineOptions engine_options;
  engine_options.drive = EngineOptions::Drive::kOwnThread;
  auto engine = *OpenNetworkEngine(engine_options);
  ChannelOptions options;
  options.link.paths = {GetParam()};
  auto channel = *Channel::Open(*engine, server_->address(), options);
  std::atomic<int> callbacks{0};
  std::vector<std::thread> threads;
  threads.reserve(3);
  std::vector<std::vector<Data>> replies(3, std::vector<Data>(200));
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      Probe::Stub stub(*channel);
      for (int i = 0; i < 200; ++i) {
        stub.Echo(MakeData(i, 10), &replies[t][i], {}, [&](const absl::Status& status) {
          EXPECT_TRUE(status.ok()) << status;
          ++callbacks;
        });
        Data reply;
        const absl::Status status = stub.Echo(MakeData(i, 20), &reply, {.timeout_us = 60'000'000});
        ASSERT_TRUE(status.ok()) << status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  channel.reset();
  EXPECT_EQ(callbacks, 600);
}

TEST_P(NetworkTest, HandlersOnOtherThreadsHandTheirRepliesBack) {
  class Slow final : public Probe::Service {
    absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
      *reply = request;
      return absl::OkStatus();
    }
  } slow;
  TwoThreads executor;
  ServerOptions options;
  options.executor = &executor;
  auto server = *Server::Create(options);
  ASSERT_TRUE(server->AddService(&slow).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  ChannelOptions channel_options;
  channel_options.link.paths = {GetParam()};
  auto channel = *Channel::Open(server->address(), channel_options);
  Probe::Stub stub(*channel);
  std::vector<Data> replies(500);
  int ended = 0;
  Waiter all;
  for (uint64_t i = 0; i < replies.size(); ++i) {
    stub.Echo(MakeData(i, 100), &replies[i], {}, [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      if (++ended == 500) CoreOf(channel->engine()).Finish(all);
    });
  }
  EXPECT_TRUE(CoreOf(channel->engine()).Wait(all));
  for (uint64_t i = 0; i < replies.size(); ++i) EXPECT_EQ(replies[i].number(), i);
}

TEST_P(NetworkTest, DeadlineEndsABlockingCall) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  Data reply;
  EXPECT_TRUE(absl::IsDeadlineExceeded(stub.Hold(Data(), &reply, {.timeout_us = 20'000})));
  EXPECT_TRUE(stub.Echo(Data(), &reply).ok());
}

TEST_P(NetworkTest, AnotherThreadCancelsABlockingCall) {
  auto channel = Open();
  Probe::Stub stub(*channel);
  ClientContext context;
  absl::Status cancelled;
  std::thread other([&] { cancelled = context.Cancel(); });
  Data reply;
  const absl::Status status = stub.Hold(Data(), &reply, {.context = &context});
  other.join();
  EXPECT_TRUE(cancelled.ok()) << cancelled;
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(stub.Echo(Data(), &reply).ok());
}

// The engine tells it while it runs on a thread of its own.
TEST_P(NetworkTest, AHandlerOnAnExecutorIsToldOfItsDeadline) {
  class Patient final : public Probe::Service {
    absl::Status Echo(ServerContext& context, const Data&, Data*) override {
      auto told = std::make_shared<std::promise<void>>();
      context.OnCancel([told] { told->set_value(); });
      told->get_future().wait();
      EXPECT_TRUE(context.cancelled());
      ended.set_value();
      return absl::OkStatus();
    }

   public:
    std::promise<void> ended;
  } patient;
  TwoThreads executor;
  ServerOptions options;
  options.executor = &executor;
  auto server = *Server::Create(options);
  ASSERT_TRUE(server->AddService(&patient).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  ChannelOptions channel_options;
  channel_options.link.paths = {GetParam()};
  auto channel = *Channel::Open(server->address(), channel_options);
  Probe::Stub stub(*channel);
  Data reply;
  const absl::Status status = stub.Echo(Data(), &reply, {.timeout_us = 20'000});
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  patient.ended.get_future().wait();
}

TEST_P(NetworkTest, NoServerIsSaidClearly) {
  const std::string address = server_->address();
  server_.reset();
  ChannelOptions options;
  options.link.paths = {GetParam()};
  const absl::Status status = Channel::Open(address, options).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("no server at " + address), absl::string_view::npos) << status;
}

INSTANTIATE_TEST_SUITE_P(Paths, NetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
