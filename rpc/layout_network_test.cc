// Calls with structs of fixed layout between real engines, over every path of this machine.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/ledger_service.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// Two servers with threads of their own, with structs and without; a channel over the path that the
// parameter names.
class LayoutNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    Serve(&layouts_, &layout_server_);
    Serve(&messages_, &message_server_);
  }
  static void Serve(Service* service, std::unique_ptr<Server>* server) {
    *server = *Server::Create();
    ASSERT_TRUE((*server)->AddService(service).ok());
    const absl::Status listening = (*server)->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
  }
  std::unique_ptr<Channel> Open(const Server& server) {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    auto channel = Channel::Open(server.address(), options);
    EXPECT_TRUE(channel.ok()) << channel.status();
    EXPECT_EQ((*channel)->path()->kind, GetParam());
    return *std::move(channel);
  }

  LayoutLedger layouts_;
  MessageLedger messages_;
  std::unique_ptr<Server> layout_server_;
  std::unique_ptr<Server> message_server_;
};

TEST_P(LayoutNetworkTest, StructsArriveUnchanged) {
  for (const Server* server : {layout_server_.get(), message_server_.get()}) {
    auto channel = Open(*server);
    Ledger::Stub stub(*channel);
    for (uint64_t i = 0; i < 500; ++i) {
      BalanceLayout balance;
      const absl::Status status = stub.Move(MakePayment(i, 5), &balance);
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(balance.amount, static_cast<int64_t>(i + 5));
      ASSERT_EQ(balance.moves, i + 1 + (i % 2) * 1000);
    }
  }
}

TEST_P(LayoutNetworkTest, StructsLargerThanAFrameArriveUnchanged) {
  auto page = std::make_unique<PageLayout>();
  auto reply = std::make_unique<PageLayout>();
  for (size_t i = 0; i < page->words.size(); ++i) page->words[i] = i * i;
  for (const Server* server : {layout_server_.get(), message_server_.get()}) {
    auto channel = Open(*server);
    Ledger::Stub stub(*channel);
    const absl::Status status = stub.Turn(*page, reply.get());
    ASSERT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < page->words.size(); ++i) {
      ASSERT_EQ(reply->words[i], page->words[page->words.size() - 1 - i]);
    }
  }
}

TEST_P(LayoutNetworkTest, SixtyFourOutstandingCallsKeepTheirReplies) {
  auto channel = Open(*layout_server_);
  Ledger::Stub stub(*channel);
  constexpr int kCalls = 20'000;
  std::vector<BalanceLayout> replies(64);
  int started = 0;
  int ended = 0;
  Waiter all;
  std::function<void(BalanceLayout*)> next = [&](BalanceLayout* reply) {
    const int amount = started++;
    stub.Move(MakePayment(2, amount), reply, {}, [&, reply, amount](const absl::Status& status) {
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(reply->amount, amount + 2);
      if (++ended == kCalls) CoreOf(channel->engine()).Finish(all);
      if (started < kCalls) next(reply);
    });
  };
  ASSERT_TRUE(CoreOf(channel->engine()).Enter());
  for (BalanceLayout& reply : replies) next(&reply);
  EXPECT_TRUE(CoreOf(channel->engine()).Wait(all));
  CoreOf(channel->engine()).Leave();
}

// From threads that may not drive the engine, structs are handed over, and still are the caller's.
TEST_P(LayoutNetworkTest, ThreadsShareAChannelOnAnotherThreadsEngine) {
  EngineOptions engine_options;
  engine_options.drive = EngineOptions::Drive::kOwnThread;
  auto engine = *OpenNetworkEngine(engine_options);
  for (const Server* server : {layout_server_.get(), message_server_.get()}) {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    auto channel = *Channel::Open(*engine, server->address(), options);
    std::vector<std::thread> threads;
    threads.reserve(3);
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&, t] {
        Ledger::Stub stub(*channel);
        for (int i = 0; i < 200; ++i) {
          const int amount = t * 1000 + i;
          BalanceLayout blocking;
          EXPECT_TRUE(stub.Move(MakePayment(2, amount), &blocking).ok());
          EXPECT_EQ(blocking.amount, amount + 2);
          BalanceLayout later;
          Waiter done;
          stub.Move(MakePayment(4, amount), &later, {}, [&](const absl::Status& status) {
            EXPECT_TRUE(status.ok()) << status;
            CoreOf(*engine).Finish(done);
          });
          CoreOf(*engine).Wait(done);
          EXPECT_EQ(later.amount, amount + 4);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(Paths, LayoutNetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
