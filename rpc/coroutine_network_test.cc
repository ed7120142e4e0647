// Coroutines between real engines and threads, over every path of this machine.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/stream_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"
#include "weft/coroutine.h"

namespace weft::test {
namespace {

// Says by its reply whether each step ran on the executor's threads.
class StepsService final : public Streams::CoService {
 public:
  Task<absl::Status> CoPlain(ServerContext&, const Data& request, Data* reply) override {
    const std::thread::id engine = engine_;
    bool elsewhere = std::this_thread::get_id() != engine;
    const absl::Status echoed = co_await echo->CoPlain(request, reply);
    elsewhere = elsewhere && std::this_thread::get_id() != engine;
    reply->set_number(elsewhere ? 1 : 0);
    co_return echoed;
  }
  Task<absl::Status> CoTalk(ServerContext&, ServerReaderWriter<Data, Data>& stream) override {
    Data data;
    while (co_await stream.CoRead(&data)) {
      if (!co_await stream.CoWrite(data)) co_return absl::AbortedError("nobody reads");
    }
    co_return absl::OkStatus();
  }
  void SetEngine(std::thread::id engine) { engine_ = engine; }

  Streams::Stub* echo = nullptr;

 private:
  std::thread::id engine_;
};

class CoroutineNetworkTest : public testing::TestWithParam<PathKind> {
 protected:
  void SetUp() override {
    EngineOptions own_thread;
    engine_ = *OpenNetworkEngine(own_thread);
    SetEngineThread();
    ServerOptions options;
    options.link.peer_timeout_ns = 0;
    back_ = *Server::Create(*engine_, options);
    ASSERT_TRUE(back_->AddService(&plain_).ok());
    ASSERT_TRUE(back_->Listen("127.0.0.1:0").ok());
    to_back_ = *Channel::Open(*engine_, back_->address(), Link());
    echo_.emplace(*to_back_);
    steps_.echo = &*echo_;
    server_ = *Server::Create(*engine_, options);
    ASSERT_TRUE(server_->AddService(&steps_, &threads_).ok());
    ASSERT_TRUE(server_->Listen("127.0.0.1:0").ok());
  }

  void SetEngineThread() {
    Waiter known;
    EngineCore& engine = CoreOf(*engine_);
    while (!engine.Post([&] {
      steps_.SetEngine(std::this_thread::get_id());
      engine.Finish(known);
    })) {
    }
    engine.Wait(known);
  }
  ChannelOptions Link() {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    return options;
  }

  TwoThreads threads_;
  StreamService plain_;
  StepsService steps_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Server> back_;
  std::unique_ptr<Channel> to_back_;
  std::optional<Streams::Stub> echo_;
  std::unique_ptr<Server> server_;
};

Task<int> Calls(const Streams::Stub& stub, int count) {
  int elsewhere = 0;
  for (int i = 0; i < count; ++i) {
    const Data request = MakeData(1, 100);
    Data reply;
    const absl::Status status = co_await stub.CoPlain(request, &reply);
    if (!status.ok()) co_return -1;
    elsewhere += reply.number() == 1;
  }
  co_return elsewhere;
}

Task<int> Talk(const Streams::Stub& stub, int count) {
  auto talk = stub.Talk();
  Data data;
  int back = 0;
  for (int i = 0; i < count; ++i) {
    if (!co_await talk.CoWrite(MakeData(1, 100)) || !co_await talk.CoRead(&data)) break;
    ++back;
  }
  talk.WritesDone();
  const absl::Status status = co_await talk.CoFinish();
  co_return status.ok() ? back : -1;
}

TEST_P(CoroutineNetworkTest, AHandlerOnAnExecutorGoesOnThere) {
  auto channel = *Channel::Open(server_->address(), Link());
  const Streams::Stub stub(*channel);
  EXPECT_EQ(Wait(channel->engine(), Calls(stub, 50)), 50);
}

TEST_P(CoroutineNetworkTest, ManyThreadsAwaitCallsAndStreams) {
  auto channel = *Channel::Open(server_->address(), Link());
  const Streams::Stub stub(*channel);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        std::vector<Task<int>> tasks;
        for (int i = 0; i < 4; ++i) tasks.push_back(Calls(stub, 5));
        for (int i = 0; i < 4; ++i) tasks.push_back(Talk(stub, 5));
        for (int done : Wait(channel->engine(), WhenAll(std::move(tasks)))) EXPECT_EQ(done, 5);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(channel->stats().calls_failed, 0u);
  EXPECT_EQ(channel->stats().streams, 0u);
}

INSTANTIATE_TEST_SUITE_P(Paths, CoroutineNetworkTest,
                         testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
