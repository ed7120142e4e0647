// Two servers that are restarted in turn, under load, between real engines: no call is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iostream>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

constexpr int kReplicas = 2;

class CountedEcho final : public Probe::Service {
 public:
  absl::Status Echo(ServerContext&, const Data& request, Data* reply) override {
    runs.fetch_add(1, std::memory_order_relaxed);
    *reply = request;
    return absl::OkStatus();
  }
  std::atomic<uint64_t> runs = 0;
};

// What all clients of a test have done. Each call is tried at one server, and at the other one if
// that says that it has not run.
struct Tally {
  // Of the next call: most are small, some are larger than a frame.
  Data NextRequest() {
    const uint64_t number = started.fetch_add(1);
    const size_t bytes = number % 400 == 7 ? 1'000'000 : number % 50 == 7 ? 50'000 : number % 300;
    return MakeData(number, bytes);
  }
  void Lose(const absl::Status& status) {
    ++lost;
    ADD_FAILURE() << status;
  }

  std::atomic<uint64_t> started = 0;
  std::atomic<uint64_t> ok = 0;
  std::atomic<uint64_t> switches = 0;
  std::atomic<uint64_t> lost = 0;
  std::atomic<bool> stop = false;
};

class RollingRestartTest : public testing::TestWithParam<PathKind> {
 protected:
  struct Replica {
    std::string address = "127.0.0.1:0";
    CountedEcho service;
    std::unique_ptr<Server> server;
  };

  void SetUp() override {
    for (int i = 0; i < kReplicas; ++i) StartServer(i);
  }

  void StartServer(int i) {
    Replica& replica = replicas_[i];
    ServerOptions options;
    options.link.peer_timeout_ns = 0;
    replica.server = *Server::Create(options);
    // One of them runs its handlers on an executor.
    Executor* const executor = i == 0 ? &threads_ : nullptr;
    ASSERT_TRUE(replica.server->AddService(&replica.service, executor).ok());
    const absl::Status listening = replica.server->Listen(replica.address);
    ASSERT_TRUE(listening.ok()) << listening;
    replica.address = replica.server->address();
  }
  // As a process that ends on SIGTERM and is started again.
  void Restart(int i) {
    replicas_[i].server->Shutdown(/*grace_us=*/30'000'000);
    replicas_[i].server.reset();
    StartServer(i);
  }

  ChannelOptions Options() {
    ChannelOptions options;
    options.link.paths = {GetParam()};
    options.link.peer_timeout_ns = 0;
    options.connect_at_once = false;
    return options;
  }

  uint64_t runs() { return replicas_[0].service.runs + replicas_[1].service.runs; }

  TwoThreads threads_;
  Replica replicas_[kReplicas];
};

// A client that has one call under way after the other, with callbacks on an engine's thread.
class Loop {
 public:
  Loop(Tally& tally, std::vector<Probe::Stub>& stubs, std::latch& over)
      : tally_(tally), stubs_(stubs), over_(over) {}

  void Next() {
    if (tally_.stop) return over_.count_down();
    request_ = tally_.NextRequest();
    tries_ = 0;
    Try();
  }

  std::atomic<uint64_t> calls = 0;

 private:
  void Try() {
    ++tries_;
    stubs_[at_].Echo(request_, &reply_, {}, [this](absl::Status status) { OnEnd(status); });
  }
  void OnEnd(const absl::Status& status) {
    if (status.ok()) {
      EXPECT_EQ(reply_.number(), request_.number());
      EXPECT_EQ(reply_.payload().size(), request_.payload().size());
      ++tally_.ok;
    } else if (DeliveryOf(status) == Delivery::kNotSent && tries_ < kReplicas) {
      ++tally_.switches;
      at_ = (at_ + 1) % kReplicas;
      return Try();
    } else {
      tally_.Lose(status);
    }
    ++calls;
    Next();
  }

  Tally& tally_;
  std::vector<Probe::Stub>& stubs_;
  std::latch& over_;
  Data request_;
  Data reply_;
  size_t at_ = 0;
  int tries_ = 0;
};

// A thread that blocks in one call after the other, and drives its channels' engines only then. A
// channel that it has not used since its server was restarted learns of it by the next call.
class Caller {
 public:
  Caller(Tally& tally, std::vector<std::unique_ptr<Channel>> channels)
      : tally_(tally), channels_(std::move(channels)) {
    for (const auto& channel : channels_) stubs_.emplace_back(*channel);
    thread_ = std::thread([this] { Run(); });
  }
  void Join() { thread_.join(); }

  std::atomic<uint64_t> calls = 0;

 private:
  static constexpr int kMostTries = 2 * kReplicas;

  void Run() {
    while (!tally_.stop) {
      const Data request = tally_.NextRequest();
      Data reply;
      absl::Status status;
      for (int tries = 1;; ++tries) {
        status = stubs_[at_].Echo(request, &reply);
        if (status.ok() || DeliveryOf(status) != Delivery::kNotSent || tries == kMostTries) break;
        ++tally_.switches;
        at_ = (at_ + 1) % stubs_.size();
      }
      if (status.ok()) {
        EXPECT_EQ(reply.payload().size(), request.payload().size());
        ++tally_.ok;
      } else {
        tally_.Lose(status);
      }
      ++calls;
    }
  }

  Tally& tally_;
  const std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Probe::Stub> stubs_;
  size_t at_ = 0;
  std::thread thread_;
};

TEST_P(RollingRestartTest, NoCallIsLost) {
  constexpr int kRounds = 5;
  constexpr size_t kLanes = 16;
  constexpr int kCallers = 2;
  Tally tally;

  EngineOptions own_thread;
  own_thread.drive = EngineOptions::Drive::kOwnThread;
  const auto engine = *OpenNetworkEngine(own_thread);
  std::vector<std::unique_ptr<Channel>> channels;
  std::vector<Probe::Stub> stubs;
  for (const Replica& replica : replicas_) {
    channels.push_back(*Channel::Open(*engine, replica.address, Options()));
    stubs.emplace_back(*channels.back());
  }
  std::latch over(kLanes);
  std::vector<std::unique_ptr<Loop>> loops;
  for (size_t i = 0; i < kLanes; ++i) {
    loops.push_back(std::make_unique<Loop>(tally, stubs, over));
    loops.back()->Next();
  }
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < kCallers; ++i) {
    std::vector<std::unique_ptr<Channel>> own;
    for (const Replica& replica : replicas_) {
      own.push_back(*Channel::Open(replica.address, Options()));
    }
    callers.push_back(std::make_unique<Caller>(tally, std::move(own)));
  }

  // Every client has begun and ended calls since: it has found the server that is there again.
  const auto await_progress = [&] {
    std::vector<const std::atomic<uint64_t>*> counts;
    for (const auto& loop : loops) counts.push_back(&loop->calls);
    for (const auto& caller : callers) counts.push_back(&caller->calls);
    for (const auto* count : counts) {
      const uint64_t until = *count + 20;
      while (*count < until && tally.lost == 0) std::this_thread::yield();
    }
  };
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < kReplicas; ++i) {
      await_progress();
      Restart(i);
    }
  }
  await_progress();
  tally.stop = true;
  over.wait();
  for (const auto& caller : callers) caller->Join();

  EXPECT_EQ(tally.lost, 0u);
  EXPECT_EQ(tally.ok, tally.started);
  EXPECT_EQ(runs(), tally.ok) << "a handler ran twice, or for nothing";
  EXPECT_GT(tally.switches, 0u);
  std::cout << PathKindName(GetParam()) << ": " << tally.ok << " calls over " << kReplicas * kRounds
            << " restarts, " << tally.switches << " switches, " << tally.lost << " lost\n";
}

// Nobody drives the engine of an idle channel: its server ends without an answer from it. What the
// server had not taken when it began to go away has surely not run.
TEST_P(RollingRestartTest, AnIdleChannelsNextCallIsNotInDoubt) {
  const auto channel = *Channel::Open(replicas_[0].address, Options());
  Probe::Stub stub(*channel);
  Data reply;
  for (int round = 0; round < 5; ++round) {
    const absl::Status before = stub.Echo(MakeData(1, 10), &reply);
    ASSERT_TRUE(before.ok()) << before;
    Restart(0);
    const uint64_t ran = runs();
    const absl::Status after = stub.Echo(MakeData(2, 10), &reply);
    EXPECT_TRUE(after.ok() || DeliveryOf(after) == Delivery::kNotSent) << after;
    EXPECT_EQ(runs() - ran, after.ok() ? 1u : 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RollingRestartTest, testing::Values(PathKind::kShm, PathKind::kTcp),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft::test
