// Three servers that call each other under random faults: machines are killed, restarted and cut
// off, channels are closed and opened again. Whatever happens, each call completes exactly once and
// runs at most once, answers tell the truth, and in the end each pair has one session.
//
// Replay a failure: peer_random_faults_test --seed=N
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
#include "rpc/testing/peer_machine.h"
#include "rpc/testing/ticks.h"
#include "weft/status.h"

namespace weft::test {
namespace {

uint64_t only_seed = 0;

// Counts what it sees of each call, by the number in its request.
class CountingService final : public Probe::Service {
 public:
  CountingService(std::map<uint64_t, int>* runs, Random random) : runs_(*runs), random_(random) {}

  absl::Status Echo(ServerContext& context, const Data& request, Data* reply) override {
    ++runs_[request.number()];
    // Calls carry the id of who has made them.
    EXPECT_EQ(context.peer_id().front(), request.payload().front());
    *reply = request;
    if (random_.Chance(0.1)) return absl::AbortedError("handlers may fail");
    return absl::OkStatus();
  }
  void StartHold(UnaryCall<Data, Data> call) override {
    ++runs_[call.request().number()];
    *call.reply() = call.request();
    held.push_back(std::move(call));
  }
  void EndOne() {
    if (held.empty()) return;
    const size_t at = random_.Uniform(held.size());
    if (random_.Chance(0.9)) held[at].Finish(absl::OkStatus());
    held.erase(held.begin() + static_cast<ptrdiff_t>(at));
  }

  std::deque<UnaryCall<Data, Data>> held;

 private:
  std::map<uint64_t, int>& runs_;
  Random random_;
};

struct Call {
  Data reply;
  uint64_t number = 0;
  size_t bytes = 0;
  int completions = 0;
  absl::Status status;
  std::unique_ptr<ClientContext> context;
};

struct Machine {
  std::string node;
  std::unique_ptr<CountingService> service;
  StreamService streams;
  std::unique_ptr<Server> server;
  std::map<std::string, std::unique_ptr<Channel>> channels;
};

class PeerFaults {
 public:
  explicit PeerFaults(uint64_t seed) : random_(seed), network_(seed) {
    // One of a pair has an address at least.
    for (const std::string& a : kIds) {
      for (const std::string& b : kIds) {
        if (a < b) dials_[{a, b}] = random_.Chance(0.7);
        if (a > b) dials_[{a, b}] = !dials_[{b, a}] || random_.Chance(0.7);
      }
    }
    for (const std::string& id : kIds) StartMachine(id);
  }
  ~PeerFaults() { EndMachines(); }

  void Run() {
    for (int step = 0; step < 300; ++step) {
      Step();
      network_.RunFor(random_.Uniform(kNsPerMs));
    }
    // The world becomes friendly again, and everything ends.
    for (const std::string& a : kIds) {
      for (const std::string& b : kIds) {
        if (a == b) continue;
        network_.Heal(now(a).node, now(b).node);
        if (now(a).channels.count(b) == 0) OpenChannel(a, b);
      }
      network_.SlowDown(now(a).node, 0);
    }
    for (int i = 0; i < 200; ++i) {
      for (const std::string& id : kIds) {
        while (!now(id).service->held.empty()) now(id).service->EndOne();
      }
      network_.RunFor(50 * kNsPerMs);
    }
    network_.CheckInvariants();
    CheckSessions();
    EndMachines();
    CheckCalls();
  }

  int cancelled() const { return cancelled_; }
  int drains() const { return drains_; }

 private:
  const std::vector<std::string> kIds = {"a", "b", "c"};

  Machine& now(const std::string& id) { return *machines_[id].back(); }
  const std::string& AnyId() { return kIds[random_.Uniform(kIds.size())]; }
  const std::string& OtherThan(const std::string& id) {
    const std::string* other = &id;
    while (*other == id) other = &AnyId();
    return *other;
  }

  void StartMachine(const std::string& id) {
    auto machine = std::make_unique<Machine>();
    machine->node = id + std::to_string(machines_[id].size());
    machine->service = std::make_unique<CountingService>(&runs_, random_.Fork());
    ServerOptions options;
    options.peer_id = id;
    options.max_outstanding_calls = static_cast<uint32_t>(random_.UniformInRange(1, 40));
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    machine->server = *Server::Create(network_.Node(machine->node), options);
    EXPECT_TRUE(machine->server->AddService(machine->service.get()).ok());
    EXPECT_TRUE(machine->server->AddService(&machine->streams).ok());
    EXPECT_TRUE(machine->server->Listen("sim:" + id).ok());
    machines_[id].push_back(std::move(machine));
    for (const std::string& other : kIds) {
      if (other != id && random_.Chance(0.8)) OpenChannel(id, other);
    }
  }
  void OpenChannel(const std::string& from, const std::string& to) {
    ChannelOptions options;
    options.max_outstanding_calls = static_cast<uint32_t>(random_.UniformInRange(1, 32));
    options.max_queued_calls = static_cast<uint32_t>(random_.UniformInRange(0, 64));
    options.link.window_slots = static_cast<uint32_t>(random_.UniformInRange(4, 16));
    auto channel = now(from).server->OpenPeer(to, dials_[{from, to}] ? "sim:" + to : "", options);
    ASSERT_TRUE(channel.ok()) << channel.status();
    now(from).channels[to] = *std::move(channel);
  }
  void EndMachines() {
    for (auto& [id, machines] : machines_) {
      for (std::unique_ptr<Machine>& machine : machines) {
        machine->channels.clear();
        machine->service->held.clear();
        machine->streams.talks.clear();
        machine->server.reset();
      }
    }
  }

  void Step() {
    const std::string& id = AnyId();
    const std::string& other = OtherThan(id);
    switch (random_.Uniform(60)) {
      case 0:
        network_.Kill(now(id).node);
        network_.fabric().RemoveListener(id, network_.fabric().IdOf(now(id).node));
        return StartMachine(id);
      case 1:
        return network_.Partition(now(id).node, now(other).node);
      case 2:
        return network_.Cut(now(id).node, now(other).node);
      case 3:
        return network_.SlowDown(now(id).node, random_.Uniform(kNsPerMs));
      case 4:
      case 5:
      case 6:
      case 7:
        return network_.Heal(now(id).node, now(other).node);
      case 8:
      case 9:
      case 10:
      case 11:
        return now(id).service->EndOne();
      case 12:
      case 13:
      case 14:
        return CancelOne();
      case 15:
        return Restart(id);
      case 16:
        if (now(id).channels.erase(other) == 0) OpenChannel(id, other);
        return;
      default:
        for (uint64_t n = random_.Uniform(4); n > 0; --n) StartCall(id, OtherThan(id));
        if (random_.Chance(0.3)) StartStream(id, other);
    }
  }

  void StartCall(const std::string& from, const std::string& to) {
    const auto channel = now(from).channels.find(to);
    if (channel == now(from).channels.end()) return;
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    call.number = calls_.size();
    call.bytes = 1 + (random_.Chance(0.05) ? random_.Uniform(200'000) : random_.Uniform(300));
    CallOptions options;
    if (random_.Chance(0.5)) options.timeout_us = random_.UniformInRange(1, 20'000);
    if (options.timeout_us != 0) options.wait_for_server = random_.Chance(0.3);
    if (random_.Chance(0.4)) {
      call.context = std::make_unique<ClientContext>();
      options.context = call.context.get();
    }
    const auto done = [&call](absl::Status status) {
      ++call.completions;
      call.status = std::move(status);
    };
    Data request;
    request.set_number(call.number);
    request.set_payload(std::string(call.bytes, from.front()));
    Probe::Stub stub(*channel->second);
    if (random_.Chance(0.3)) {
      stub.Hold(request, &call.reply, options, done);
    } else {
      stub.Echo(request, &call.reply, options, done);
    }
  }
  // A stream that is given up at once, perhaps before it is open.
  void StartStream(const std::string& from, const std::string& to) {
    const auto channel = now(from).channels.find(to);
    if (channel == now(from).channels.end()) return;
    Data reply;
    ClientWriter<Data> sum = Streams::Stub(*channel->second).Sum(&reply);
    for (uint64_t n = random_.Uniform(4); n > 0; --n) {
      static_cast<void>(sum.TryWrite(MakeData(1, random_.Uniform(2000))));
    }
  }

  void Restart(const std::string& id) {
    Machine& old = now(id);
    std::deque<Ticks> meanwhile;
    for (const std::string& other : kIds) {
      meanwhile.emplace_back(network_.Node(now(other).node), &random_, [this, other] {
        now(other).service->EndOne();
        StartCall(other, OtherThan(other));
      });
    }
    old.server->Shutdown(random_.Uniform(100'000));
    EXPECT_EQ(old.server->stats().running, 0u);
    EXPECT_EQ(old.server->stats().connections, 0u);
    EXPECT_EQ(old.server->stats().peers, 0u);
    meanwhile.clear();
    ++drains_;
    StartMachine(id);
  }

  void CancelOne() {
    if (calls_.empty()) return;
    Call& call = *calls_[calls_.size() - 1 - random_.Uniform(std::min<size_t>(calls_.size(), 20))];
    if (call.context == nullptr) return;
    EXPECT_TRUE(call.context->Cancel().ok());
  }

  void CheckSessions() {
    for (const std::string& id : kIds) {
      SCOPED_TRACE(testing::Message() << "server " << id << " on " << now(id).node);
      const ServerStats stats = now(id).server->stats();
      EXPECT_EQ(stats.peers, 2u);
      EXPECT_EQ(stats.connections, 2u);
      EXPECT_EQ(stats.running, 0u);
      EXPECT_EQ(stats.running_bytes, 0u);
      EXPECT_EQ(stats.protocol_errors, 0u);
      for (const auto& [other, channel] : now(id).channels) {
        SCOPED_TRACE(testing::Message() << "to " << other);
        EXPECT_EQ(channel->state(), ChannelState::kReady);
        internal::ConnectionOf(*channel).calls().CheckInvariants();
        const ChannelStats calls = channel->stats();
        EXPECT_EQ(calls.outstanding, 0u);
        EXPECT_EQ(calls.abandoned, 0u);
        EXPECT_EQ(calls.queued, 0u);
        EXPECT_EQ(calls.streams, 0u);
        EXPECT_EQ(calls.calls_started, calls.calls_ok + calls.calls_failed);
      }
    }
  }

  void CheckCalls() {
    int ok = 0;
    for (const std::unique_ptr<Call>& call : calls_) {
      SCOPED_TRACE(testing::Message() << "call " << call->number << ": " << call->status);
      ASSERT_EQ(call->completions, 1);
      cancelled_ += absl::IsCancelled(call->status);
      const int runs = runs_[call->number];
      ASSERT_LE(runs, 1) << "the handler ran twice";
      if (call->status.ok()) {
        ++ok;
        ASSERT_EQ(runs, 1);
        ASSERT_EQ(call->reply.number(), call->number);
        ASSERT_EQ(call->reply.payload().size(), call->bytes);
      }
      if (DeliveryOf(call->status) == Delivery::kNotSent) {
        ASSERT_EQ(runs, 0) << "it was said not to have been sent";
      }
    }
    EXPECT_GT(ok, 0);
  }

  Random random_;
  SimNetwork network_;
  std::map<uint64_t, int> runs_;
  std::map<std::pair<std::string, std::string>, bool> dials_;
  // Declared before the machines: callbacks write to them until those are gone.
  std::deque<std::unique_ptr<Call>> calls_;
  std::map<std::string, std::vector<std::unique_ptr<Machine>>> machines_;  // the last ones live
  int cancelled_ = 0;
  int drains_ = 0;
};

TEST(PeerRandomFaultsTest, EveryCallCompletesOnceAndEachPairHasOneSession) {
  constexpr uint64_t kSeeds = 60;
  const uint64_t first = only_seed != 0 ? only_seed : 1;
  const uint64_t last = only_seed != 0 ? only_seed : kSeeds;
  int cancelled = 0;
  int drains = 0;
  for (uint64_t seed = first; seed <= last; ++seed) {
    SCOPED_TRACE(testing::Message() << "replay with --seed=" << seed);
    PeerFaults world(seed);
    world.Run();
    cancelled += world.cancelled();
    drains += world.drains();
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_TRUE((cancelled > 0 && drains > 0) || only_seed != 0);
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
