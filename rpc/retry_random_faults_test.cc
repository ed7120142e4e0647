// Calls that are sent again, and hedged, under random faults: every call completes exactly once,
// one that may not run twice never does, and the answers tell the truth.
//
// Replay a failure: retry_random_faults_test --seed=N
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/fickle_executor.h"
#include "rpc/testing/retry_test.h"
#include "rpc/wire/metadata.h"
#include "weft/status.h"

namespace weft::test {
namespace {

uint64_t only_seed = 0;

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

class RetryRandomFaults {
 public:
  explicit RetryRandomFaults(uint64_t seed) : random_(seed), network_(seed) {
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

  static std::string ClientName(int i) { return "client" + std::to_string(i); }
  const std::string& server_node() const { return machines_.back().node; }

  void StartServer() {
    ServerMachine machine;
    machine.node = "server" + std::to_string(machines_.size());
    machine.service = std::make_unique<FickleStore>(&runs_, random_.Fork());
    machine.executor = std::make_unique<FickleExecutor>(random_.Fork(), 0.1);
    ServerOptions options;
    options.max_outstanding_calls = static_cast<uint32_t>(random_.UniformInRange(1, 40));
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    machine.server = *Server::Create(network_.Node(machine.node), options);
    EXPECT_TRUE(machine.server->AddService(machine.service.get(), machine.executor.get()).ok());
    EXPECT_TRUE(machine.server->Listen("sim:server").ok());
    machines_.push_back(std::move(machine));
  }

  void OpenChannel(int client) {
    ChannelOptions options;
    options.connect_at_once = false;
    options.max_outstanding_calls = static_cast<uint32_t>(random_.UniformInRange(1, 32));
    options.max_queued_calls = static_cast<uint32_t>(random_.UniformInRange(0, 64));
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    options.retry.max_attempts = static_cast<uint32_t>(random_.UniformInRange(2, kMaxAttempts));
    options.retry.initial_backoff_us = random_.UniformInRange(1, 2'000);
    options.retry.max_backoff_us = random_.UniformInRange(2'000, 10'000);
    options.retry.budget_tokens = static_cast<uint32_t>(random_.UniformInRange(3, 1000));
    options.retry.refill_millitokens = static_cast<uint32_t>(random_.UniformInRange(1, 1000));
    if (random_.Chance(0.7)) options.retry.hedge_after_us = random_.UniformInRange(1, 3'000);
    channels_[client] = *Channel::Open(network_.Node(ClientName(client)), "sim:server", options);
  }

  void Count(Channel& channel) {
    const ChannelStats stats = channel.stats();
    retries_ += stats.retries;
    hedges_ += stats.hedges;
  }

  void Heal(int client) { network_.Heal(ClientName(client), server_node()); }

  void Step() {
    const int client = static_cast<int>(random_.Uniform(kClients));
    switch (random_.Uniform(60)) {
      case 0:
        network_.Kill(server_node());
        network_.fabric().RemoveListener("server", network_.fabric().IdOf(server_node()));
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
        return CancelOne();
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

  // One of the last calls; it may have ended.
  void CancelOne() {
    if (calls_.empty()) return;
    Call& call = *calls_[calls_.size() - 1 - random_.Uniform(std::min<size_t>(calls_.size(), 20))];
    if (call.context == nullptr) return;
    EXPECT_TRUE(call.context->Cancel().ok());
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
      if (DeliveryOf(call->status) == Delivery::kNotSent) {
        ASSERT_EQ(runs, 0) << "it was said not to have been sent";
      }
      if (call->status.message().find("not sent") != absl::string_view::npos ||
          call->status.message().find("not run") != absl::string_view::npos) {
        ASSERT_EQ(runs, 0) << "it was said not to have been sent";
      }
    }
    EXPECT_GT(ok, 0);
    for (const std::unique_ptr<Channel>& channel : channels_) {
      Count(*channel);
      const ChannelStats stats = channel->stats();
      EXPECT_EQ(stats.outstanding, 0u);
      EXPECT_EQ(stats.abandoned, 0u);
      EXPECT_EQ(stats.queued, 0u);
      EXPECT_EQ(stats.calls_started, stats.calls_ok + stats.calls_failed);
    }
    EXPECT_EQ(machines_.back().server->stats().running, 0u);
    EXPECT_EQ(machines_.back().server->stats().running_bytes, 0u);
  }

  Random random_;
  SimNetwork network_;
  std::map<uint64_t, int> runs_;        // of each call's handler
  std::deque<ServerMachine> machines_;  // the last one lives
  std::vector<std::unique_ptr<Channel>> channels_;
  std::deque<std::unique_ptr<Call>> calls_;
  uint64_t retries_ = 0;
  uint64_t hedges_ = 0;
};

TEST(RetryRandomFaultsTest, EveryCallCompletesOnceAndOnlyWhatMayRunTwiceDoes) {
  constexpr uint64_t kSeeds = 60;
  const uint64_t first = only_seed != 0 ? only_seed : 1;
  const uint64_t last = only_seed != 0 ? only_seed : kSeeds;
  uint64_t retries = 0;
  uint64_t hedges = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "replay with --seed=" << seed);
    RetryRandomFaults world(seed);
    world.Run();
    retries += world.retries();
    hedges += world.hedges();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE((retries > 1000 && hedges > 100) || only_seed != 0)
      << retries << " retries, " << hedges << " hedges";
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  constexpr std::string_view kFlag = "--seed=";
  if (argc > 1 && std::string_view(argv[1]).starts_with(kFlag)) {
    weft::test::only_seed = std::strtoull(argv[1] + kFlag.size(), nullptr, 10);
  }
  return RUN_ALL_TESTS();
}
