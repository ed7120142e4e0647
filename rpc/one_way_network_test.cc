// One-way messages between real engines, over every path of this machine.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/exported_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// Handlers may run on several threads.
class CountingSignals final : public Signals::Service {
 public:
  absl::Status Notify(ServerContext&, const Data& request) override {
    bytes.fetch_add(request.payload().size());
    sum.fetch_add(request.number());
    count.fetch_add(1);
    return absl::OkStatus();
  }
  absl::Status Ask(ServerContext&, const Data&, Data* reply) override {
    reply->set_number(count.load());
    return absl::OkStatus();
  }

  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> sum{0};
  std::atomic<uint64_t> bytes{0};
};

class OneWayNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  void Serve(Executor* executor = nullptr) {
    ServerOptions options;
    options.executor = executor;
    options.max_outstanding_calls = 4096;
    options.link.peer_timeout_ns = 0;
    server_ = *Server::Create(options);
    ASSERT_TRUE(server_->AddService(&signals_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  ChannelOptions Options() {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    return options;
  }

  CountingSignals signals_;
  std::unique_ptr<Server> server_;
};

TEST_P(OneWayNetworkTest, AllArriveBeforeACallBehindThem) {
  Serve();
  auto channel = *Channel::Open(server_->address(), Options());
  EXPECT_EQ(channel->path()->kind, GetParam());
  Signals::Stub stub(*channel);
  constexpr uint64_t kCount = 20'000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const absl::Status status = stub.Notify(MakeData(i, i % 200));
    ASSERT_TRUE(status.ok()) << status;
  }
  Data reply;
  ASSERT_TRUE(stub.Ask(Data(), &reply).ok());
  EXPECT_EQ(reply.number(), kCount);
  EXPECT_EQ(signals_.sum.load(), kCount * (kCount - 1) / 2);
  EXPECT_EQ(server_->stats().one_way_dropped, 0u);
}

TEST_P(OneWayNetworkTest, MessagesOfEverySizeArrive) {
  Serve();
  auto channel = *Channel::Open(server_->address(), Options());
  Signals::Stub stub(*channel);
  uint64_t sent = 0;
  uint64_t bytes = 0;
  for (size_t size = 0; size <= (size_t{4} << 20); size = size * 4 + 1) {
    ASSERT_TRUE(stub.Notify(MakeData(0, size)).ok());
    ++sent;
    bytes += size;
  }
  // Large ones are overtaken by what is behind them.
  Data reply;
  while (reply.number() < sent) ASSERT_TRUE(stub.Ask(Data(), &reply).ok());
  EXPECT_EQ(signals_.bytes.load(), bytes);
}

TEST_P(OneWayNetworkTest, ThreadsSendOnAnotherThreadsEngineToHandlersOnAnExecutor) {
  TwoThreads executor;
  Serve(&executor);
  EngineOptions engine_options;
  engine_options.drive = EngineOptions::Drive::kOwnThread;
  auto engine = *OpenNetworkEngine(engine_options);
  auto channel = *Channel::Open(*engine, server_->address(), Options());
  constexpr uint64_t kThreads = 3;
  constexpr uint64_t kCount = 500;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Signals::Stub stub(*channel);
      for (uint64_t i = 0; i < kCount; ++i) {
        const absl::Status status = stub.Notify(MakeData(1, 64), {.timeout_us = 60'000'000});
        ASSERT_TRUE(status.ok()) << status;
        stub.Notify(MakeData(2, 64), {}, nullptr);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  Signals::Stub stub(*channel);
  Data reply;
  while (reply.number() < 2 * kThreads * kCount) ASSERT_TRUE(stub.Ask(Data(), &reply).ok());
  EXPECT_EQ(signals_.sum.load(), 3 * kThreads * kCount);
  EXPECT_EQ(server_->stats().one_way_dropped, 0u);
  channel.reset();
  server_.reset();
}

TEST_P(OneWayNetworkTest, AHandlerFindsWhatWasWrittenBeforeItsMessage) {
  class Finding final : public Signals::Service {
   public:
    absl::Status Notify(ServerContext&, const Data& request) override {
      for (const std::byte byte : memory) same += byte == static_cast<std::byte>(request.number());
      return absl::OkStatus();
    }
    absl::Status Ask(ServerContext&, const Data&, Data* reply) override {
      reply->set_number(same);
      return absl::OkStatus();
    }
    std::vector<std::byte> memory = std::vector<std::byte>(64 << 10);
    uint64_t same = 0;
  } finding;
  server_ = *Server::Create();
  ASSERT_TRUE(server_->AddService(&finding).ok());
  ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  auto exported = *server_->Export(finding.memory, {.rights = kAllRights});
  auto channel = *Channel::Open(server_->address(), Options());
  auto memory = *RemoteMemory::Open(*channel, exported->handle());
  auto buffer = *channel->AllocateBuffer(finding.memory.size());
  Signals::Stub stub(*channel);
  for (uint64_t round = 1; round <= 50; ++round) {
    std::memset(buffer->bytes().data(), static_cast<int>(round), buffer->bytes().size());
    const RemotePiece piece = {0, buffer->slice()};
    Waiter written;
    memory->WriteAcknowledged(absl::MakeConstSpan(&piece, 1), [&](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      CoreOf(channel->engine()).Finish(written);
    });
    ASSERT_TRUE(stub.Notify(MakeData(round, 0)).ok());
    Data reply;
    ASSERT_TRUE(stub.Ask(Data(), &reply).ok());
    ASSERT_EQ(reply.number(), round * finding.memory.size());
    CoreOf(channel->engine()).Wait(written);
  }
  memory.reset();
  exported.reset();
  channel.reset();
  server_.reset();
}

INSTANTIATE_TEST_SUITE_P(Paths, OneWayNetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
