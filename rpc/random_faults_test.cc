// Calls and one-way messages under random faults: whatever happens to machines and wires, every
// one completes exactly once, no handler runs twice for one, and the answers tell the truth.
//
// Replay a failure: --seed=N
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_context.h"
#include "rpc/testing/probe_service.h"
#include "rpc/testing/random_world.h"
#include "rpc/testing/signal_service.h"
#include "rpc/testing/ticks.h"
#include "rpc/wire/metadata.h"
#include "weft/status.h"

namespace weft::test {
namespace {

// What the servers have seen of one call.
struct Seen {
  int runs = 0;       // of its handler
  int cancelled = 0;  // times that its handler was told so
};

// Counts what it sees of each call, by the number in its request.
class CountingService final : public Probe::Service {
 public:
  explicit CountingService(std::map<uint64_t, Seen>* seen, Random random)
      : seen_(seen), random_(random) {}

  absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
    ++(*seen_)[request.number()].runs;
    *reply = request;
    if (const std::string* const value = context.metadata().Find("k")) {
      EXPECT_EQ(value->size(), request.number() % 3000);
      EXPECT_TRUE(context.AddReplyMetadata("k", *value).ok());
    }
    if (random_.Chance(0.1)) return absl::AbortedError("handlers may fail");
    return absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, Data> call) override {
    Seen& seen = (*seen_)[call.request().number()];
    ++seen.runs;
    *call.reply() = call.request();
    if (random_.Chance(0.5)) call.context().OnCancel([&seen] { ++seen.cancelled; });
    held.push_back(std::move(call));
  }
  // Ends a held call, or forgets it.
  void EndOne() {
    if (held.empty()) return;
    const size_t at = random_.Uniform(held.size());
    if (random_.Chance(0.9)) held[at].Finish(absl::OkStatus());
    held.erase(held.begin() + static_cast<ptrdiff_t>(at));
  }

  std::deque<UnaryCall<Data, Data>> held;

 private:
  std::map<uint64_t, Seen>* seen_;
  Random random_;
};

// The same of one-way messages.
class CountingSignals final : public Signals::Service {
 public:
  explicit CountingSignals(std::map<uint64_t, Seen>* seen, Random random)
      : seen_(seen), random_(random) {}

  absl::Status Notify(ServerContext&, const Data& request) override {
    ++(*seen_)[request.number()].runs;
    return random_.Chance(0.1) ? absl::AbortedError("handlers may fail") : absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, google::protobuf::Empty> signal) override {
    Seen& seen = (*seen_)[signal.request().number()];
    ++seen.runs;
    if (random_.Chance(0.5)) signal.context().OnCancel([&seen] { ++seen.cancelled; });
    held.push_back(std::move(signal));
  }
  // Ends a held one, or forgets it.
  void EndOne() {
    if (held.empty()) return;
    const size_t at = random_.Uniform(held.size());
    if (random_.Chance(0.9)) held[at].Finish(absl::OkStatus());
    held.erase(held.begin() + static_cast<ptrdiff_t>(at));
  }

  std::deque<UnaryCall<Data, google::protobuf::Empty>> held;

 private:
  std::map<uint64_t, Seen>* seen_;
  Random random_;
};

// A machine that serves, until it is killed.
struct ServerMachine {
  std::string node;
  std::unique_ptr<CountingService> service;
  std::unique_ptr<CountingSignals> signals;
  std::unique_ptr<Server> server;
};

struct Call {
  Data reply;
  uint64_t number = 0;
  size_t bytes = 0;
  int completions = 0;
  absl::Status status;
  std::unique_ptr<ClientContext> context;  // or none
};

struct Sent {
  uint64_t number = 0;
  int completions = 0;
  absl::Status status;
};

class RandomFaults final : private RandomWorld {
 public:
  // Answers leave with their turn, or in parts.
  static SimOptions Options(uint64_t seed) {
    SimOptions options;
    if (seed % 2 == 1) options.frames_to_part = 2;
    return options;
  }

  explicit RandomFaults(uint64_t seed) : RandomWorld(seed, Options(seed)) {
    StartServer();
    for (int i = 0; i < kClients; ++i) {
      channels_.push_back(*Channel::Open(ClientNode(i), "sim:server", DrawChannelOptions()));
      stubs_.emplace_back(*channels_.back());
      signals_.emplace_back(*channels_.back());
    }
  }

  ~RandomFaults() {
    channels_.clear();
    for (ServerMachine& machine : machines_) {
      machine.service->held.clear();
      machine.signals->held.clear();
    }
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
      while (!machines_.back().signals->held.empty()) machines_.back().signals->EndOne();
      network_.RunFor(50 * kNsPerMs);
    }
    network_.CheckInvariants();
    Check();
    CheckSent();
  }

  int cancelled() const { return cancelled_; }
  int drains() const { return drains_; }

 private:
  static constexpr int kClients = 3;
  static constexpr int kSteps = 400;

  void StartServer() {
    ServerMachine machine;
    machine.node = TakeServerNode();
    machine.service = std::make_unique<CountingService>(&seen_, random_.Fork());
    machine.signals = std::make_unique<CountingSignals>(&signals_seen_, random_.Fork());
    machine.server = *Server::Create(network_.Node(machine.node), DrawServerOptions());
    EXPECT_TRUE(machine.server->AddService(machine.service.get()).ok());
    EXPECT_TRUE(machine.server->AddService(machine.signals.get()).ok());
    EXPECT_TRUE(machine.server->Listen("sim:server").ok());
    machines_.push_back(std::move(machine));
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
        return network_.SlowDown(ClientName(client), random_.Uniform(kNsPerMs));
      case 5:
      case 6:
      case 7:
        return Heal(client);
      case 8:
      case 9:
      case 10:
      case 11:
      case 12:
        machines_.back().signals->EndOne();
        return machines_.back().service->EndOne();
      case 13:
      case 14:
      case 15:
        return CancelOneOf(calls_);
      case 16:
        return RestartServer();
      default:
        for (uint64_t n = random_.Uniform(4); n > 0; --n) StartCall(client);
        for (uint64_t n = random_.Uniform(4); n > 0; --n) StartSend(client);
    }
  }

  void StartSend(int client) {
    sent_.push_back(std::make_unique<Sent>());
    Sent* const sent = sent_.back().get();
    sent->number = sent_.size();
    CallOptions options;
    if (random_.Chance(0.5)) options.timeout_us = random_.UniformInRange(1, 20'000);
    if (options.timeout_us != 0) options.wait_for_server = random_.Chance(0.3);
    const auto done = [sent](absl::Status status) {
      ++sent->completions;
      sent->status = std::move(status);
    };
    const Data message = MakeData(
        sent->number, random_.Chance(0.05) ? random_.Uniform(200'000) : random_.Uniform(300));
    if (random_.Chance(0.3)) {
      signals_[client].Hold(message, options, done);
    } else {
      signals_[client].Notify(message, options, done);
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
    if (random_.Chance(0.3)) {
      stubs_[client].Hold(request, &call->reply, options, done);
    } else {
      stubs_[client].Echo(request, &call->reply, options, done);
    }
  }

  // The server shuts down, while calls go on, and another one takes its place.
  void RestartServer() {
    ServerMachine& old = machines_.back();
    std::deque<Ticks> meanwhile;
    meanwhile.emplace_back(network_.Node(old.node), &random_, [&old] {
      old.service->EndOne();
      old.signals->EndOne();
    });
    for (int i = 0; i < kClients; ++i) {
      meanwhile.emplace_back(network_.Node(ClientName(i)), &random_, [this, i] {
        StartCall(i);
        StartSend(i);
      });
    }
    old.server->Shutdown(random_.Uniform(100'000));
    EXPECT_EQ(old.server->stats().running, 0u);
    EXPECT_EQ(old.server->stats().connections, 0u);
    ++drains_;
    StartServer();
  }

  void Check() {
    int ok = 0;
    for (const std::unique_ptr<Call>& call : calls_) {
      SCOPED_TRACE(testing::Message() << "call " << call->number << ": " << call->status);
      ASSERT_EQ(call->completions, 1);
      const int runs = seen_[call->number].runs;
      ASSERT_LE(runs, 1) << "the handler ran twice";
      ASSERT_LE(seen_[call->number].cancelled, 1);
      cancelled_ += absl::IsCancelled(call->status);
      if (call->status.ok()) {
        ++ok;
        ASSERT_EQ(runs, 1);
        ASSERT_EQ(call->reply.number(), call->number);
        ASSERT_EQ(call->reply.payload().size(), call->bytes);
      }
      if (call->context != nullptr) {
        const std::string* const value = call->context->reply_metadata().Find("k");
        ASSERT_TRUE(value == nullptr || value->size() == call->number % 3000);
      }
      CheckThatItIsTrue(call->status, runs);
    }
    EXPECT_GT(ok, 0);
    for (const std::unique_ptr<Channel>& channel : channels_) {
      ExpectNothingUnderWay(channel->stats());
    }
    ExpectNothingUnderWay(machines_.back().server->stats());
  }

  void CheckSent() {
    int arrived = 0;
    for (const std::unique_ptr<Sent>& sent : sent_) {
      SCOPED_TRACE(testing::Message() << "message " << sent->number << ": " << sent->status);
      ASSERT_EQ(sent->completions, 1);
      const Seen& seen = signals_seen_[sent->number];
      ASSERT_LE(seen.runs, 1) << "the handler ran twice";
      ASSERT_LE(seen.cancelled, 1);
      arrived += seen.runs;
      if (sent->status.ok()) continue;
      ASSERT_EQ(DeliveryOf(sent->status), Delivery::kNotSent);
      ASSERT_EQ(seen.runs, 0) << "it was said not to have been sent";
    }
    EXPECT_GT(arrived, 0);
  }

  std::map<uint64_t, Seen> seen_;
  std::map<uint64_t, Seen> signals_seen_;
  std::deque<ServerMachine> machines_;  // the last one lives
  std::vector<std::unique_ptr<Channel>> channels_;
  std::vector<Probe::Stub> stubs_;
  std::deque<std::unique_ptr<Call>> calls_;
  std::vector<Signals::Stub> signals_;
  std::deque<std::unique_ptr<Sent>> sent_;
  int cancelled_ = 0;  // calls that ended so
  int drains_ = 0;
};

TEST(RandomFaultsTest, EveryCallCompletesOnceAndNoHandlerRunsTwice) {
  int cancelled = 0;
  int drains = 0;
  const uint64_t seeds = ForEachSeed(60, [&](uint64_t seed) {
    RandomFaults world(seed);
    world.Run();
    cancelled += world.cancelled();
    drains += world.drains();
  });
  EXPECT_TRUE((cancelled > 0 && drains > 0) || seeds == 0);
}

}  // namespace
}  // namespace weft::test

int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
