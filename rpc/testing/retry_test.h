// A client that sends calls again, and a server that does with each attempt what the test says, on
// a simulated network.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/channel.h"
#include "rpc/client/client_connection.h"
#include "rpc/server/server.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/retry_service.weft.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"

namespace weft::test {

// Each attempt takes the next step of the script; without one it is echoed.
class StoreService final : public Store::Service {
 public:
  using Attempt = UnaryCall<Data, Data>;
  using Step = Function<void(Attempt)>;

  // What an attempt brought, and when.
  struct Seen {
    uint64_t number = 0;
    uint64_t at_ns = 0;
    uint64_t remaining_us = 0;
    std::string previous_attempts;  // "": it does not say
    std::string user;               // the caller's metadata "user"
  };

  explicit StoreService(Clock* clock) : clock_(*clock) {}

  void StartLook(Attempt attempt) override { Take(std::move(attempt)); }
  void StartSet(Attempt attempt) override { Take(std::move(attempt)); }
  void StartAdd(Attempt attempt) override { Take(std::move(attempt)); }

  // --- steps ------------------------------------------------------------------------------------

  static Step Echo() {
    return [](Attempt attempt) {
      *attempt.reply() = attempt.request();
      attempt.Finish(absl::OkStatus());
    };
  }
  static Step Fail(absl::Status status) {
    return [status = std::move(status)](Attempt attempt) { attempt.Finish(status); };
  }
  static Step Unavailable() { return Fail(absl::UnavailableError("come again")); }
  Step Hold() {
    return [this](Attempt attempt) {
      attempt.context().OnCancel([this] { ++cancelled; });
      held.push_back(std::move(attempt));
    };
  }

  void Next(Step step) { script_.push_back(std::move(step)); }
  void ForgetScript() { script_.clear(); }
  // Ends the held attempt that came as number `at` of them.
  void End(size_t at, const absl::Status& status = absl::OkStatus()) {
    Attempt attempt = std::move(held[at]);
    *attempt.reply() = attempt.request();
    attempt.Finish(status);
  }

  std::vector<Seen> seen;
  std::deque<Attempt> held;
  int cancelled = 0;

 private:
  void Take(Attempt attempt) {
    const auto value = [&attempt](std::string_view key) {
      const std::string* const found = attempt.context().metadata().Find(key);
      return found == nullptr ? std::string() : *found;
    };
    seen.push_back({attempt.request().number(), clock_.NowNs(), attempt.context().remaining_us(),
                    value("grpc-previous-rpc-attempts"), value("user")});
    Step step = Echo();
    if (!script_.empty()) {
      step = std::move(script_.front());
      script_.pop_front();
    }
    step(std::move(attempt));
  }

  Clock& clock_;
  std::deque<Step> script_;
};

// A call by callback, until its end.
struct RetriedOutcome {
  Data reply;
  int completions = 0;
  absl::Status status;
  uint64_t at_ns = 0;

  bool done() const { return completions > 0; }
  Function<void(absl::Status)> Callback(Clock& clock) {
    return [this, &clock](absl::Status result) {
      ++completions;
      status = std::move(result);
      at_ns = clock.NowNs();
    };
  }
};

class RetryTest : public testing::Test {
 protected:
  explicit RetryTest(uint64_t seed = 1) : network_(seed), service_(&network_.clock()) {}

  ~RetryTest() override {
    service_.held.clear();
    lost_.clear();
    stub_.reset();
    channel_.reset();
    server_.reset();
    killed_servers_.clear();
  }

  EngineCore& client() { return CoreOf(network_.Node("client")); }
  Clock& clock() { return network_.clock(); }

  static ChannelOptions Retrying() {
    ChannelOptions options;
    options.retry.max_attempts = 4;
    return options;
  }
  static ChannelOptions Hedging(uint64_t after_us) {
    ChannelOptions options = Retrying();
    options.retry.hedge_after_us = after_us;
    return options;
  }

  void StartServer(const ServerOptions& options = {}) {
    server_ = *Server::Create(network_.Node(server_node_), options);
    ASSERT_TRUE(server_->AddService(&service_).ok());
    ASSERT_TRUE(server_->Listen("sim:server").ok());
  }
  // The server's machine dies. StartServer() then uses another one, under the same address.
  void KillServer() {
    network_.Kill(server_node_);
    network_.fabric().RemoveListener("server", network_.fabric().IdOf(server_node_));
    server_node_ += "'";
    killed_servers_.push_back(std::move(server_));
    for (StoreService::Attempt& attempt : service_.held) lost_.push_back(std::move(attempt));
    service_.held.clear();
  }
  void OpenChannel(const ChannelOptions& options) {
    auto channel = Channel::Open(client(), "sim:server", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
  }
  void Start(const ChannelOptions& options) {
    StartServer();
    OpenChannel(options);
  }
  // A channel that has not connected, and nobody to connect to.
  void StartAlone(ChannelOptions options) {
    options.connect_at_once = false;
    OpenChannel(options);
  }

  void Look(RetriedOutcome& outcome, const CallOptions& options = {}, uint64_t number = 7) {
    stub_->Look(MakeData(number, 10), &outcome.reply, options, outcome.Callback(clock()));
  }
  void Add(RetriedOutcome& outcome, const CallOptions& options = {}, uint64_t number = 7) {
    stub_->Add(MakeData(number, 10), &outcome.reply, options, outcome.Callback(clock()));
  }

  bool RunUntil(Function<bool()> done) {
    const bool result = network_.RunUntil(std::move(done), 100 * kNsPerSec);
    network_.CheckInvariants();
    if (channel_ != nullptr) internal::ConnectionOf(*channel_).calls().CheckInvariants();
    return result;
  }
  // With its reply, if that is what the call has ended with.
  absl::Status EndOf(RetriedOutcome& outcome) {
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.completions, 1);
    if (outcome.status.ok()) {
      EXPECT_EQ(outcome.reply.number(), 7u);
    }
    return outcome.status;
  }
  // Everything that is still under way has come to rest: nothing is held for a call that has ended.
  void ExpectNothingIsLeft() {
    network_.RunFor(5 * kNsPerSec);
    const ChannelStats stats = channel_->stats();
    EXPECT_EQ(stats.outstanding, 0u);
    EXPECT_EQ(stats.queued, 0u);
    EXPECT_EQ(stats.abandoned, 0u);
    EXPECT_EQ(stats.calls_started, stats.calls_ok + stats.calls_failed);
  }

  SimNetwork network_;
  std::string server_node_ = "server";
  StoreService service_;
  std::vector<std::unique_ptr<Server>> killed_servers_;
  std::deque<StoreService::Attempt> lost_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<Channel> channel_;
  std::optional<Store::Stub> stub_;
};

}  // namespace weft::test
