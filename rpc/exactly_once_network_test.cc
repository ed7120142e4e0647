// Calls that run exactly once between real engines, from many threads, with handlers on other
// threads.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/wire/completion_id.h"
#include "transport/network.h"

namespace weft::test {
namespace {

// A thread for each task.
class Threads final : public Executor {
 public:
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  bool Run(Function<void()> task) override {
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([task = std::move(task)]() mutable { task(); });
    return true;
  }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

class Account final : public Store::Service {
 public:
  absl::Status Add(ServerContext& context, const Data& request, Data* reply) override {
    const CompletionId* const id = context.completion_id();
    if (id == nullptr || id->sequence == 0) return absl::InternalError("it has no name");
    ++runs;
    *reply = request;
    return request.number() % 5 == 0 ? absl::NotFoundError("no such account") : absl::OkStatus();
  }
  std::atomic<int> runs = 0;
};

class ExactlyOnceNetworkTest : public testing::TestWithParam<PathKind> {};

TEST_P(ExactlyOnceNetworkTest, CallsOfManyThreadsRunOnceEach) {
  constexpr int kThreads = 4;
  constexpr int kCalls = 50;
  Account account;
  Threads executor;
  const std::unique_ptr<Server> server = *Server::Create();
  ASSERT_TRUE(server->AddService(&account, &executor).ok());
  ASSERT_TRUE(server->Listen("127.0.0.1:0").ok());
  const std::unique_ptr<Engine> engine = *OpenNetworkEngine({});
  ChannelOptions options;
  options.link.paths = {GetParam()};
  options.retry.max_attempts = 2;
  options.retry.exactly_once = true;
  auto channel = Channel::Open(*engine, server->address(), options);
  ASSERT_TRUE(channel.ok()) << channel.status();
  const Store::Stub stub(**channel);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kCalls; ++i) {
        const auto number = static_cast<uint64_t>(t * kCalls + i);
        Data reply;
        const absl::Status status = stub.Add(MakeData(number, 100), &reply);
        if (number % 5 == 0) {
          EXPECT_TRUE(absl::IsNotFound(status)) << status;
        } else {
          EXPECT_TRUE(status.ok() && reply.number() == number) << status;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(account.runs, kThreads * kCalls);
  EXPECT_EQ(server->stats().sessions, 1u);
  channel->reset();
  server->Shutdown(0);
}

INSTANTIATE_TEST_SUITE_P(Paths, ExactlyOnceNetworkTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
