// Calls that are sent again, and hedged, under random faults: every call completes exactly once,
// one that may not run twice never does, and the answers tell the truth.
//
// Replay a failure: --seed=N
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/client/retried_calls.h"
#include "rpc/testing/fickle_executor.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/random_world.h"
#include "rpc/testing/retry_service.weft.h"
#include "rpc/wire/metadata.h"

namespace weft::test {
namespace {

// Answers, fails, holds or forgets what comes, and counts it by the number in its request.
class FickleStore final : public Store::Service {
 public:
  using Attempt = UnaryCall<Data, Data>;

  FickleStore(std::map<uint64_t, int>* runs, Random random) : runs_(runs), random_(random) {}

  void StartLook(Attempt attempt) override { Take(std::move(attempt)); }
  void StartSet(Attempt attempt) override { Take(std::move(attempt)); }
  void StartAdd(Attempt attempt) override { Take(std::move(attempt)); }

  // Ends a held attempt, or forgets it.
  void EndOne() {
    if (held.empty()) return;
    const size_t at = random_.Uniform(held.size());
    if (random_.Chance(0.9)) Answer(held[at]);
    held.erase(held.begin() + static_cast<ptrdiff_t>(at));
  }

  std::deque<Attempt> held;

 private:
  void Take(Attempt attempt) {
    ++(*runs_)[attempt.request().number()];
    if (const std::string* const value = attempt.context().metadata().Find("k")) {
      EXPECT_TRUE(attempt.context().AddReplyMetadata("k", *value).ok());
    }
    if (random_.Chance(0.3)) return held.push_back(std::move(attempt));
    Answer(attempt);
  }
  void Answer(Attempt& attempt) {
    *attempt.reply() = attempt.request();
    if (random_.Chance(0.2)) return attempt.Finish(absl::UnavailableError("come again"));
    if (random_.Chance(0.1)) return attempt.Finish(absl::AbortedError("handlers may fail"));
    attempt.Finish(absl::OkStatus());
  }

  std::map<uint64_t, int>* runs_;
  Random random_;
};

// A machine that serves, until it is killed.
struct ServerMachine {
  std::string node;
  std::unique_ptr<FickleStore> service;
  std::unique_ptr<FickleExecutor> executor;
  std::unique_ptr<Server> server;
};

struct Call {
  Data reply;
  uint64_t number = 0;
  size_t bytes = 0;
  bool may_run_twice = false;
  int completions = 0;
  absl::Status status;
  std::unique_ptr<ClientContext> context;  // or none
};

class RetryRandomFaults final : private RandomWorld {
 public:
  explicit RetryRandomFaults(uint64_t seed) : RandomWorld(seed) {
    StartServer();
    channels_.resize(kClients);
    for (int i = 0; i < kClients; ++i) OpenChannel(i);
  }

  ~RetryRandomFaults() {
    channels_.clear();
    for (ServerMachine& machine : machines_) machine.service->held.clear();
    machines_.clear();
  }

  void Run() {
    for (int step = 0; step < kSteps; ++step) {
      Step();
      network_.RunFor(random_.Uniform(kNsPerMs));
    }
    // The world becomes friendly again, and everything ends.
    for (int i = 0; i < kClients; ++i) Heal(i);
    for (int i = 0; i < 200; ++i) {
      while (!machines_.back().service->held.empty()) machines_.back().service->EndOne();
      network_.RunFor(50 * kNsPerMs);
    }
    network_.CheckInvariants();
    Check();
  }

  uint64_t retries() const { return retries_; }
  uint64_t hedges() const { return hedges_; }

 private:
  static constexpr int kClients = 3;
  static constexpr int kSteps = 400;

  void StartServer() {
    ServerMachine machine;
    machine.node = TakeServerNode();
    machine.service = std::make_unique<FickleStore>(&runs_, random_.Fork());
    machine.executor = std::make_unique<FickleExecutor>(random_.Fork(), 0.1);
    machine.server = *Server::Create(network_.Node(machine.node), DrawServerOptions());
    EXPECT_TRUE(machine.server->AddService(machine.service.get(), machine.executor.get()).ok());
    EXPECT_TRUE(machine.server->Listen("sim:server").ok());
    machines_.push_back(std::move(machine));
  }

  void OpenChannel(int client) {
    ChannelOptions options = DrawChannelOptions();
    options.retry.max_attempts = Draw(2, kMaxAttempts);
    options.retry.initial_backoff_us = random_.UniformInRange(1, 2'000);
    options.retry.max_backoff_us = random_.UniformInRange(2'000, 10'000);
    options.retry.budget_tokens = Draw(3, 1000);
    options.retry.refill_millitokens = Draw(1, 1000);
    if (random_.Chance(0.7)) options.retry.hedge_after_us = random_.UniformInRange(1, 3'000);
    channels_[client] = *Channel::Open(ClientNode(client), "sim:server", options);
  }

  void Count(Channel& channel) {
    const ChannelStats stats = channel.stats();
    retries_ += stats.retries;
    hedges_ += stats.hedges;
  }

  void Step() {
    const int client = static_cast<int>(random_.Uniform(kClients));
    switch (random_.Uniform(60)) {
      case 0:
        KillServer();
        return StartServer();
      case 1:
        return network_.Partition(ClientName(client), server_node());
      case 2:
        return network_.Cut(server_node(), ClientName(client));
      case 3:
        return network_.SlowDown(server_node(), random_.Uniform(2 * kNsPerMs));
      case 4:
        Count(*channels_[client]);
        channels_[client].reset();
        return OpenChannel(client);
      case 5:
      case 6:
      case 7:
        return Heal(client);
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        return machines_.back().service->EndOne();
      case 13:
      case 14:
      case 15:
        return CancelOneOf(calls_);
      default:
        for (uint64_t n = random_.Uniform(4); n > 0; --n) StartCall(client);
    }
  }

  void StartCall(int client) {
    calls_.push_back(std::make_unique<Call>());
    Call* call = calls_.back().get();
    call->number = calls_.size();
    call->bytes = random_.Chance(0.05) ? random_.Uniform(200'000) : random_.Uniform(300);
    CallOptions options;
    if (random_.Chance(0.5)) options.timeout_us = random_.UniformInRange(1, 20'000);
    if (options.timeout_us != 0) options.wait_for_server = random_.Chance(0.3);
    const auto done = [call](absl::Status status) {
      ++call->completions;
      call->status = std::move(status);
    };
    if (random_.Chance(0.4)) {
      call->context = std::make_unique<ClientContext>();
      options.context = call->context.get();
      if (random_.Chance(0.5)) {
        EXPECT_TRUE(call->context->AddMetadata("k", std::string(call->number % 3000, 'v')).ok());
      }
    }
    const Data request = MakeData(call->number, call->bytes);
    const Store::Stub stub(*channels_[client]);
    call->may_run_twice = random_.Chance(0.7);
    if (!call->may_run_twice) {
      stub.Add(request, &call->reply, options, done);
    } else if (random_.Chance(0.5)) {
      stub.Look(request, &call->reply, options, done);
    } else {
      stub.Set(request, &call->reply, options, done);
    }
  }

  void Check() {
    int ok = 0;
    for (const std::unique_ptr<Call>& call : calls_) {
      SCOPED_TRACE(testing::Message() << "call " << call->number << ": " << call->status);
      ASSERT_EQ(call->completions, 1);
      const int runs = runs_[call->number];
      ASSERT_LE(runs, call->may_run_twice ? static_cast<int>(kMaxAttempts) : 1);
      if (call->status.ok()) {
        ++ok;
        ASSERT_GE(runs, 1);
        ASSERT_EQ(call->reply.number(), call->number);
        ASSERT_EQ(call->reply.payload().size(), call->bytes);
      }
      if (call->context != nullptr) {
        const Metadata& metadata = call->context->reply_metadata();
        ASSERT_LE(metadata.size(), 1u) << "of one attempt";
        const std::string* const value = metadata.Find("k");
        ASSERT_TRUE(value == nullptr || value->size() == call->number % 3000);
      }
      CheckThatItIsTrue(call->status, runs);
    }
    EXPECT_GT(ok, 0);
    for (const std::unique_ptr<Channel>& channel : channels_) {
      Count(*channel);
      ExpectNothingUnderWay(channel->stats());
    }
    ExpectNothingUnderWay(machines_.back().server->stats());
  }

  std::map<uint64_t, int> runs_;        // of each call's handler
  std::deque<ServerMachine> machines_;  // the last one lives
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<std::unique_ptr<Call>> calls_;
  uint64_t retries_ = 0;
  uint64_t hedges_ = 0;
};

TEST(RetryRandomFaultsTest, EveryCallCompletesOnceAndOnlyWhatMayRunTwiceDoes) {
  uint64_t retries = 0;
  uint64_t hedges = 0;
  const uint64_t seeds = ForEachSeed(60, [&](uint64_t seed) {
    RetryRandomFaults world(seed);
    world.Run();
    retries += world.retries();
    hedges += world.hedges();
  });
  EXPECT_TRUE((retries > 1000 && hedges > 100) || seeds == 0)
      << retries << " retries, " << hedges << " hedges";
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
