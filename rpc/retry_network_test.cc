// Calls that are sent again, and what a channel tells of itself, between real engines and from many
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/channel_watch.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/wire/metadata.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// Is away for the first attempt of every third call.
class ShyStore final : public Store::Service {
  absl::Status Look(ServerContext& context, const Data& request, Data* reply) override {
    if (request.number() % 3 == 0 &&
        context.metadata().Find("grpc-previous-rpc-attempts") == nullptr) {
      return absl::UnavailableError("come again");
    }
    *reply = request;
    return absl::OkStatus();
  }
};

class RetryNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  static constexpr int kThreads = 4;

  void SetUp() override {
    server_ = *Server::Create();
    ASSERT_TRUE(server_->AddService(&service_).ok());
    const absl::Status listening = server_->Listen("127.0.0.1:0");
    ASSERT_TRUE(listening.ok()) << listening;
    engine_ = *OpenNetworkEngine({});  // has a thread of its own
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.retry.max_attempts = 4;
    options.retry.initial_backoff_us = 100;
    options.retry.budget_tokens = 1000;
    options.retry.refill_millitokens = 1000;
    auto channel = Channel::Open(*engine_, server_->address(), options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
  }

  template <class Work>
  static void OnThreads(Work work) {
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) threads.emplace_back([work, t] { work(t); });
    for (std::thread& thread : threads) thread.join();
  }

  ShyStore service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Channel> channel_;
};

TEST_P(RetryNetworkTest, ThreadsThatDoNotDriveHaveTheirCallsSentAgain) {
  constexpr uint64_t kCallsEach = 300;
  OnThreads([this](uint64_t thread) {
    const Store::Stub stub(*channel_);
    std::vector<Data> replies(kCallsEach);
    std::latch all(kCallsEach);
    for (uint64_t i = 0; i < kCallsEach; ++i) {
      const uint64_t number = thread * kCallsEach + i;
      stub.Look(MakeData(number, 50), &replies[i], {}, [&](const absl::Status& status) {
        EXPECT_TRUE(status.ok()) << status;
        all.count_down();
      });
      Data reply;
      const absl::Status status = stub.Look(MakeData(number, 50), &reply);
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(reply.number(), number);
    }
    all.wait();
    for (uint64_t i = 0; i < kCallsEach; ++i) {
      EXPECT_EQ(replies[i].number(), thread * kCallsEach + i);
    }
  });
  const ChannelStats stats = channel_->stats();
  EXPECT_EQ(stats.calls_ok, 2 * kThreads * kCallsEach);
  EXPECT_EQ(stats.calls_failed, 0u);
  EXPECT_EQ(stats.retries, 2 * kThreads * kCallsEach / 3);
}

TEST_P(RetryNetworkTest, ThreadsWatchAndWaitForRoom) {
  OnThreads([this](int) {
    for (int i = 0; i < 100; ++i) {
      std::promise<Channel::State> seen;
      auto watch = channel_->WatchState([&](Channel::State state) { seen.set_value(state); });
      ASSERT_TRUE(watch.ok()) << watch.status();
      std::promise<absl::Status> room;
      channel_->WhenWritable([&](absl::Status status) { room.set_value(std::move(status)); });
      EXPECT_EQ(seen.get_future().get(), Channel::State::kReady);
      EXPECT_EQ(room.get_future().get(), absl::OkStatus());
      EXPECT_EQ(channel_->state(), Channel::State::kReady);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, RetryNetworkTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
