// A channel over many servers, on a simulated network.
#include "rpc/client/balancing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/client_context.h"
#include "rpc/client/client_stream_handles.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/server/server.h"
#include "rpc/testing/retry_test.h"
#include "rpc/testing/stream_service.h"
#include "rpc/testing/ticks.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using State = ChannelState;

class BalancingTest : public testing::Test {
 protected:
  // One server, on a machine of its own.
  struct Machine {
    explicit Machine(Clock* clock) : store(clock) {}

    std::string node;
    StoreService store;
    StreamService streams;
    std::unique_ptr<Server> server;
    std::deque<StoreService::Attempt> lost;  // with a machine that has died
    size_t calls() const { return store.seen.size(); }
  };

  ~BalancingTest() override {
    stub_.reset();
    for (auto& [name, machine] : machines_) {
      machine->store.held.clear();
      machine->streams.talks.clear();
    }
    channel_.reset();
    for (auto& machine : dead_) {
      machine->lost.clear();
      machine->streams.talks.clear();
    }
    machines_.clear();
    dead_.clear();
  }

  Clock& clock() { return network_.clock(); }
  EngineCore& client() { return CoreOf(network_.Node("client")); }
  Machine& machine(const std::string& name) { return *machines_.at(name); }

  void StartServer(const std::string& name, const ServerOptions& options = {}) {
    auto machine = std::make_unique<Machine>(&clock());
    machine->node = name + "-" + std::to_string(++nodes_);
    machine->server = *Server::Create(network_.Node(machine->node), options);
    ASSERT_TRUE(machine->server->AddService(&machine->store).ok());
    ASSERT_TRUE(machine->server->AddService(&machine->streams).ok());
    ASSERT_TRUE(machine->server->Listen("sim:" + name).ok());
    machines_[name] = std::move(machine);
  }
  void StartServers(const std::vector<std::string>& names) {
    for (const std::string& name : names) StartServer(name);
  }
  void Kill(const std::string& name) {
    std::unique_ptr<Machine> machine = std::move(machines_.at(name));
    machines_.erase(name);
    network_.Kill(machine->node);
    network_.fabric().RemoveListener(name, network_.fabric().IdOf(machine->node));
    for (auto& attempt : machine->store.held) machine->lost.push_back(std::move(attempt));
    machine->store.held.clear();
    dead_.push_back(std::move(machine));
  }

  static std::string ListOf(const std::vector<std::string>& names) {
    std::string list = "list:";
    for (const std::string& name : names) list += (list.size() > 5 ? ",sim:" : "sim:") + name;
    return list;
  }
  static std::vector<ListedServer> Addresses(const std::vector<std::string>& names) {
    std::vector<ListedServer> addresses;
    for (const std::string& name : names) addresses.push_back({"sim:" + name});
    return addresses;
  }

  void Open(const std::string& target, const BalancingOptions& balancing = {},
            const ChannelOptions& options = {}) {
    auto channel = OpenBalanced(client(), target, options, balancing);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
  }
  // Servers with these names, and a channel that is connected to all of them.
  void Start(const std::vector<std::string>& names, const BalancingOptions& balancing = {},
             const ChannelOptions& options = {}) {
    StartServers(names);
    Open(ListOf(names), balancing, options);
    ASSERT_TRUE(RunUntil([&] { return CountReady() == names.size(); }));
  }
  // They begin at the same server in each run.
  static BalancingOptions InTurn() {
    return {.policy = BalancingPolicy::kRoundRobin, .client_number = 1};
  }
  static ChannelOptions Retrying() {
    ChannelOptions options;
    options.retry.max_attempts = 4;
    return options;
  }

  bool RunUntil(Function<bool()> done) {
    const bool result = network_.RunUntil(std::move(done), 100 * kNsPerSec);
    network_.CheckInvariants();
    if (channel_ != nullptr) internal::ConnectionOf(*channel_).calls().CheckInvariants();
    return result;
  }
  size_t CountReady() {
    const std::vector<ServerFacts> facts = ServersOf(*channel_);
    return static_cast<size_t>(std::count_if(facts.begin(), facts.end(), [](const auto& f) {
      return f.state == State::kReady && !f.draining;
    }));
  }
  // Of the server that is listed under that name last; its state is kShutdown if there is none.
  ServerFacts FactsOf(const std::string& name) {
    ServerFacts facts;
    facts.state = State::kShutdown;
    for (const ServerFacts& f : ServersOf(*channel_)) {
      if (f.server.address == "sim:" + name) facts = f;
    }
    return facts;
  }

  RetriedOutcome& Look(const CallOptions& options = {}) {
    RetriedOutcome& outcome = outcomes_.emplace_back();
    stub_->Look(MakeData(7, 10), &outcome.reply, options, outcome.Callback(clock()));
    return outcome;
  }
  absl::Status EndOf(RetriedOutcome& outcome) {
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    EXPECT_EQ(outcome.completions, 1);
    return outcome.status;
  }
  absl::Status LookNow(const CallOptions& options = {}) { return EndOf(Look(options)); }
  void LookTimes(int times, const CallOptions& options = {}) {
    for (int i = 0; i < times; ++i) {
      const absl::Status status = LookNow(options);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  // Everything that was held or under way has come to rest.
  void ExpectNothingIsLeft() {
    network_.RunFor(5 * kNsPerSec);
    const ChannelStats stats = channel_->stats();
    EXPECT_EQ(stats.outstanding, 0u);
    EXPECT_EQ(stats.queued, 0u);
    EXPECT_EQ(stats.calls_started, stats.calls_ok + stats.calls_failed);
  }

  SimNetwork network_{1};
  int nodes_ = 0;
  std::map<std::string, std::unique_ptr<Machine>> machines_;
  std::vector<std::unique_ptr<Machine>> dead_;
  std::unique_ptr<Channel> channel_;
  std::optional<Store::Stub> stub_;
  std::deque<RetriedOutcome> outcomes_;
  std::deque<At> plan_;
};

// --- who gets a call ----------------------------------------------------------------------------

TEST_F(BalancingTest, CallsGoToTheServersInTurn) {
  Start({"a", "b", "c"}, InTurn());
  LookTimes(30);
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(machine(name).calls(), 10u) << name;
  EXPECT_EQ(channel_->state(), State::kReady);
  EXPECT_EQ(channel_->stats().calls_ok, 30u);
  ExpectNothingIsLeft();
}

// All began with the first server and went on together: a thousand clients that start at once, as
// after an outage, brought one server after the other more than it could do.
TEST_F(BalancingTest, ClientsBeginTheirTurnsAtServersOfTheirOwn) {
  StartServers({"a", "b", "c"});
  for (uint32_t client = 0; client < 24; ++client) {
    BalancingOptions balancing = InTurn();
    balancing.client_number = client;
    Open(ListOf({"a", "b", "c"}), balancing);
    ASSERT_TRUE(RunUntil([&] { return CountReady() == 3; }));
    LookTimes(1);
  }
  for (const char* name : {"a", "b", "c"}) EXPECT_GE(machine(name).calls(), 3u) << name;
}

TEST_F(BalancingTest, BlockingCallsGoToTheServersInTurn) {
  Start({"a", "b"}, InTurn());
  for (int i = 0; i < 10; ++i) {
    Data reply;
    const absl::Status status = stub_->Look(MakeData(7, 10), &reply, {.timeout_us = 1'000'000});
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(reply.number(), 7u);
  }
  EXPECT_EQ(machine("a").calls(), 5u);
  EXPECT_EQ(machine("b").calls(), 5u);
}

// Methods are bound once for all servers: of those that are connected, and of those that come.
TEST_F(BalancingTest, AStubThatIsMadeLaterCallsAllServers) {
  Start({"a", "b"}, InTurn());
  LookTimes(2);
  const Streams::Stub later(*channel_);
  for (int i = 0; i < 4; ++i) {
    Data reply;
    ASSERT_TRUE(later.Plain(MakeData(3, 5), &reply, {.timeout_us = 1'000'000}).ok());
  }
  StartServer("c");
  ASSERT_TRUE(SetServers(*channel_, Addresses({"c"})).ok());
  ASSERT_TRUE(RunUntil([&] { return FactsOf("c").state == State::kReady; }));
  Data reply;
  ASSERT_TRUE(later.Plain(MakeData(3, 5), &reply, {.timeout_us = 1'000'000}).ok());
  LookTimes(1);
  EXPECT_EQ(machine("c").calls(), 1u);
}

TEST_F(BalancingTest, AServerThatIsSlowGetsFewerCalls) {
  Start({"a", "b", "c", "d"});
  for (int i = 0; i < 40; ++i) machine("a").store.Next(machine("a").store.Hold());
  // The first few that "a" gets stay there.
  for (int round = 0; round < 50; ++round) {
    std::vector<RetriedOutcome*> calls;
    for (int i = 0; i < 4; ++i) calls.push_back(&Look());
    network_.RunFor(10 * kNsPerMs);
  }
  EXPECT_LT(machine("a").calls(), 20u);
  for (const char* name : {"b", "c", "d"}) EXPECT_GT(machine(name).calls(), 40u) << name;
}

TEST_F(BalancingTest, EqualKeysGoToOneServer) {
  BalancingOptions balancing;
  balancing.policy = BalancingPolicy::kConsistentHash;
  Start({"a", "b", "c", "d"}, balancing);
  for (int key = 0; key < 40; ++key) {
    std::map<std::string, size_t> before;
    for (auto& [name, machine] : machines_) before[name] = machine->calls();
    LookTimes(3, {.server_key = ServerKeyOf("user:" + std::to_string(key))});
    int servers = 0;
    for (auto& [name, machine] : machines_) {
      const size_t more = machine->calls() - before[name];
      EXPECT_TRUE(more == 0 || more == 3) << name;
      servers += more > 0;
    }
    EXPECT_EQ(servers, 1);
  }
  for (auto& [name, machine] : machines_) EXPECT_GT(machine->calls(), 0u) << name;
}

TEST_F(BalancingTest, AKeyGoesToTheNextServerWhileItsOwnIsAway) {
  BalancingOptions balancing;
  balancing.policy = BalancingPolicy::kConsistentHash;
  Start({"a", "b", "c"}, balancing);
  const CallOptions call = {.server_key = 42};
  LookTimes(1, call);
  std::string home;
  for (auto& [name, machine] : machines_) {
    if (machine->calls() == 1) home = name;
  }
  Kill(home);
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2; }));
  LookTimes(5, call);
  StartServer(home);
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 3; }));
  LookTimes(1, call);
  EXPECT_EQ(machine(home).calls(), 1u);
}

TEST_F(BalancingTest, ServersOfTheZoneComeFirst) {
  StartServers({"a", "b", "far", "further"});
  BalancingOptions balancing = InTurn();
  balancing.zone = "here";
  Open("list:sim:a@here,sim:far@there,sim:b@here,sim:further@there", balancing);
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2; }));
  LookTimes(20);
  EXPECT_EQ(machine("a").calls(), 10u);
  EXPECT_EQ(machine("b").calls(), 10u);
  EXPECT_EQ(FactsOf("far").state, State::kIdle);  // not even connected
  // Half of the zone is enough.
  Kill("a");
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 1; }));
  LookTimes(10);
  EXPECT_EQ(machine("far").calls(), 0u);
  Kill("b");
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2; }));
  LookTimes(10);
  EXPECT_EQ(machine("far").calls(), 5u);
  EXPECT_EQ(machine("further").calls(), 5u);
  StartServer("b");
  ASSERT_TRUE(RunUntil([&] { return FactsOf("b").state == State::kReady; }));
  LookTimes(10);
  EXPECT_EQ(machine("b").calls(), 10u);
}

TEST_F(BalancingTest, AClientConnectsToItsPartOfALongList) {
  std::vector<std::string> names;
  for (int i = 0; i < 12; ++i) names.push_back("s" + std::to_string(i));
  StartServers(names);
  std::map<std::string, int> clients;
  for (uint32_t number = 0; number < 4; ++number) {
    BalancingOptions balancing = InTurn();
    balancing.max_servers = 3;
    balancing.client_number = number;
    Open(ListOf(names), balancing);
    ASSERT_TRUE(RunUntil([&] { return CountReady() == 3; }));
    for (const ServerFacts& facts : ServersOf(*channel_)) ++clients[facts.server.address];
  }
  EXPECT_EQ(clients.size(), 12u) << "each server has one client";
}

// --- no room ------------------------------------------------------------------------------------

// A call that waits belongs to no server: it takes the first room there is.
TEST_F(BalancingTest, ACallThatWaitsTakesTheFirstRoom) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start({"a", "b"}, InTurn(), options);
  for (const char* name : {"a", "b"}) machine(name).store.Next(machine(name).store.Hold());
  RetriedOutcome& first = Look();
  RetriedOutcome& second = Look();
  RetriedOutcome& third = Look();
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(channel_->stats().queued, 1u);
  machine("b").store.End(0);
  EXPECT_TRUE(EndOf(third).ok());
  EXPECT_EQ(machine("b").calls(), 2u);
  machine("a").store.End(0);
  EXPECT_TRUE(EndOf(first).ok());
  EXPECT_TRUE(EndOf(second).ok());
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, TellsWhenThereIsRoomAgain) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start({"a"}, InTurn(), options);
  machine("a").store.Next(machine("a").store.Hold());
  Look();
  network_.RunFor(kNsPerMs);
  int told = 0;
  channel_->WhenWritable([&](absl::Status status) { told += status.ok(); });
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(told, 0);
  machine("a").store.End(0);
  EXPECT_TRUE(RunUntil([&] { return told == 1; }));
}

TEST_F(BalancingTest, DeadlinesAndCancelsReachTheServer) {
  Start({"a"});
  for (int i = 0; i < 2; ++i) machine("a").store.Next(machine("a").store.Hold());
  const absl::Status late = LookNow({.timeout_us = 5000});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(DeliveryOf(late), Delivery::kMayHaveRun);
  ClientContext context;
  RetriedOutcome& cancelled = Look({.context = &context});
  network_.RunFor(kNsPerMs);
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_TRUE(absl::IsCancelled(EndOf(cancelled)));
  EXPECT_TRUE(RunUntil([&] { return machine("a").store.cancelled == 2; }));
  machine("a").store.End(0);
  machine("a").store.End(1);
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, ACallThatStillWaitsIsCancelledThere) {
  ChannelOptions options;
  options.max_outstanding_calls = 1;
  Start({"a"}, {}, options);
  machine("a").store.Next(machine("a").store.Hold());
  Look();
  ClientContext context;
  RetriedOutcome& waits = Look({.context = &context});
  const absl::Status late = LookNow({.timeout_us = 5000});
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(DeliveryOf(late), Delivery::kNotSent);
  ASSERT_TRUE(context.Cancel().ok());
  EXPECT_EQ(DeliveryOf(EndOf(waits)), Delivery::kNotSent);
  machine("a").store.End(0);
  ExpectNothingIsLeft();
}

// --- servers that die, hang and go away ---------------------------------------------------------

TEST_F(BalancingTest, CallsOfAKilledServerGoToAnotherOne) {
  Start({"a", "b", "c"}, InTurn(), Retrying());
  machine("a").store.Next(machine("a").store.Hold());
  RetriedOutcome* held = nullptr;
  for (int i = 0; i < 3; ++i) {
    RetriedOutcome& outcome = Look();
    network_.RunFor(kNsPerMs);
    if (!outcome.done()) held = &outcome;
  }
  ASSERT_NE(held, nullptr);
  const size_t others = machine("b").calls() + machine("c").calls();
  Kill("a");
  EXPECT_TRUE(EndOf(*held).ok());
  EXPECT_EQ(machine("b").calls() + machine("c").calls(), others + 1);
  const uint64_t retries = channel_->stats().retries;
  LookTimes(20);
  EXPECT_EQ(channel_->stats().retries, retries) << "a dead server was called";
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, AServerThatComesBackGetsCallsAgain) {
  Start({"a", "b"}, InTurn());
  Kill("a");
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 1; }));
  LookTimes(10);
  StartServer("a");
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2; }));
  LookTimes(10);
  EXPECT_EQ(machine("a").calls(), 5u);
}

TEST_F(BalancingTest, AnAttemptAvoidsTheServerThatFailed) {
  Start({"a", "b"}, InTurn(), Retrying());
  for (int i = 0; i < 20; ++i) machine("a").store.Next(StoreService::Unavailable());
  LookTimes(4);
  EXPECT_EQ(machine("b").calls(), 4u);
  EXPECT_LE(machine("a").calls(), 4u);
}

TEST_F(BalancingTest, AHedgeGoesToAnotherServer) {
  ChannelOptions options = Retrying();
  options.retry.hedge_after_us = 5000;
  Start({"a", "b"}, InTurn(), options);
  for (int i = 0; i < 4; ++i) {
    machine("a").store.Next(machine("a").store.Hold());
    LookTimes(1);
  }
  EXPECT_EQ(machine("b").calls(), 4u);
  EXPECT_EQ(channel_->stats().hedges, machine("a").store.held.size());
  EXPECT_GE(channel_->stats().hedges, 1u);
  while (!machine("a").store.held.empty()) machine("a").store.held.pop_front();
  ExpectNothingIsLeft();
}

// Shutdown() drives the network while it waits: what happens meanwhile is planned before. A request
// that is on its way when the server begins is refused, and sent to another one.
TEST_F(BalancingTest, NoCallFailsWhileServersShutDownInTurn) {
  Start({"a", "b", "c"}, InTurn(), Retrying());
  for (const char* name : {"a", "b", "c"}) {
    machine(name).store.Next(machine(name).store.Hold());
    std::vector<RetriedOutcome*> calls;
    for (int i = 0; i < 6; ++i) calls.push_back(&Look());
    network_.RunFor(kNsPerMs);
    ASSERT_EQ(machine(name).store.held.size(), 1u);
    const auto at_ms = [&](uint64_t ms, Function<void()> what) {
      plan_.emplace_back(client(), ms * kNsPerMs, std::move(what));
    };
    for (uint64_t ms = 0; ms < 10; ++ms) at_ms(ms, [&] { calls.push_back(&Look()); });
    const size_t before = machine(name).calls();
    at_ms(20, [&] {
      EXPECT_LE(machine(name).calls(), before + 1) << "it is left alone once it has said so";
      machine(name).store.End(0);
    });
    machine(name).server->Shutdown(/*grace_us=*/10'000'000);
    for (RetriedOutcome* const call : calls) EXPECT_TRUE(EndOf(*call).ok()) << call->status;
    machines_.erase(name);
    StartServer(name);
    ASSERT_TRUE(RunUntil([&] { return CountReady() == 3; }));
  }
  EXPECT_EQ(channel_->stats().calls_failed, 0u);
}

TEST_F(BalancingTest, WithoutAServerCallsFailOrWait) {
  ChannelOptions options;
  options.connect_at_once = false;
  Open("list:sim:a,sim:b", InTurn(), options);
  const absl::Status status = LookNow();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kNotSent);
  EXPECT_NE(status.message().find("list:sim:a,sim:b"), std::string::npos) << status;
  RetriedOutcome& patient = Look({.wait_for_server = true});
  network_.RunFor(kNsPerSec);
  EXPECT_FALSE(patient.done());
  EXPECT_EQ(channel_->path().status().code(), absl::StatusCode::kUnavailable);
  StartServer("b");
  EXPECT_TRUE(EndOf(patient).ok());
  EXPECT_EQ(channel_->path()->kind, PathKind::kSim);
}

TEST_F(BalancingTest, OpenSaysWhenNoServerCanBeReached) {
  const absl::Status status = OpenBalanced(client(), "list:sim:a,sim:b").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_NE(status.message().find("nobody listens"), std::string::npos) << status;
}

TEST_F(BalancingTest, AChannelThatEndsEndsItsCallsOnce) {
  Start({"a", "b"}, InTurn(), Retrying());
  for (const char* name : {"a", "b"}) {
    for (int i = 0; i < 5; ++i) machine(name).store.Next(machine(name).store.Hold());
  }
  for (int i = 0; i < 6; ++i) Look();
  for (int i = 0; i < 2; ++i) Look({.no_retry = true});
  network_.RunFor(kNsPerMs);
  stub_.reset();
  channel_.reset();
  for (RetriedOutcome& outcome : outcomes_) {
    EXPECT_EQ(outcome.completions, 1);
    EXPECT_TRUE(absl::IsCancelled(outcome.status)) << outcome.status;
  }
}

// --- servers that have too much to do ------------------------------------------------------------

class OverloadedServerTest : public BalancingTest {
 protected:
  // "full" has as many calls as it takes, of somebody else.
  void StartWithFullServer(const BalancingOptions& balancing, const ChannelOptions& options = {}) {
    ServerOptions limited;
    limited.limits.per_method = {{"weft.test.Store/Look", 1}};
    StartServer("full", limited);
    StartServers({"a", "b"});
    other_ = *Channel::Open(client(), "sim:full");
    machine("full").store.Next(machine("full").store.Hold());
    Store::Stub(*other_).Look(MakeData(7, 10), &held_.reply, {}, held_.Callback(clock()));
    ASSERT_TRUE(RunUntil([&] { return machine("full").store.held.size() == 1; }));
    Open(ListOf({"full", "a", "b"}), balancing, options);
    ASSERT_TRUE(RunUntil([&] { return CountReady() == 3; }));
  }
  ~OverloadedServerTest() override { other_.reset(); }

  RetriedOutcome held_;
  std::unique_ptr<Channel> other_;
};

// Who refuses at once has nothing under way, and looked like the one with least to do: of 100 calls
// that come one after the other, 25 were refused.
TEST_F(OverloadedServerTest, IsSparedForAWhile) {
  StartWithFullServer({});
  int refused = 0;
  for (int i = 0; i < 100; ++i) refused += LookNow().ok() ? 0 : 1;
  EXPECT_LE(refused, 5);
  EXPECT_GE(machine("full").server->stats().refused_by_method_limit, 1u);
}

TEST_F(OverloadedServerTest, IsUsedAgainAfterwards) {
  StartWithFullServer({});
  for (int i = 0; i < 20; ++i) (void)LookNow();
  machine("full").store.End(0);
  network_.RunFor(10 * kNsPerMs);
  const size_t before = machine("full").calls();
  LookTimes(50);
  EXPECT_GT(machine("full").calls(), before + 5);
}

TEST_F(OverloadedServerTest, IsUsedIfAllAreOverloaded) {
  StartWithFullServer({});
  ASSERT_TRUE(SetServers(*channel_, Addresses({"full"})).ok());
  ASSERT_TRUE(RunUntil([&] { return ServersOf(*channel_).size() == 1; }));
  EXPECT_TRUE(absl::IsResourceExhausted(LookNow()));
  EXPECT_TRUE(absl::IsResourceExhausted(LookNow()));
  machine("full").store.End(0);
  ASSERT_TRUE(RunUntil([&] { return held_.done(); }));
  LookTimes(1);
}

TEST_F(OverloadedServerTest, RetriesGoElsewhere) {
  StartWithFullServer(InTurn(), Retrying());
  LookTimes(30);
}

// Three refusals in a row made a client eject a server that was well.
TEST_F(OverloadedServerTest, IsNotEjected) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 3;
  StartWithFullServer(balancing);
  for (int i = 0; i < 60; ++i) (void)LookNow();
  EXPECT_GE(machine("full").server->stats().refused_by_method_limit, 20u);
  EXPECT_EQ(FactsOf("full").ejections, 0u);
  EXPECT_EQ(FactsOf("full").failures, 0u);
}

// --- ejection -----------------------------------------------------------------------------------

TEST_F(BalancingTest, AServerThatKeepsFailingIsEjectedForAWhile) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 3;
  balancing.ejection.ejection_us = 1'000'000;
  balancing.ejection.interval_us = 0;
  Start({"a", "b", "c", "d"}, balancing);
  const auto fail = [&] { machine("a").store.Next(StoreService::Unavailable()); };
  for (int i = 0; i < 3; ++i) fail();
  for (int i = 0; i < 40; ++i) static_cast<void>(LookNow());
  EXPECT_EQ(machine("a").calls(), 3u);
  EXPECT_TRUE(FactsOf("a").ejected);
  EXPECT_EQ(FactsOf("a").state, State::kReady);  // the connection stays
  EXPECT_EQ(FactsOf("a").failures, 3u);
  network_.RunFor(1100 * kNsPerMs);
  // On trial: the first failure ejects it again, and for twice as long.
  EXPECT_FALSE(FactsOf("a").ejected);
  fail();
  for (int i = 0; i < 8; ++i) static_cast<void>(LookNow());
  EXPECT_EQ(machine("a").calls(), 4u);
  network_.RunFor(1100 * kNsPerMs);
  EXPECT_TRUE(FactsOf("a").ejected);
  network_.RunFor(1100 * kNsPerMs);
  EXPECT_FALSE(FactsOf("a").ejected);
  EXPECT_EQ(FactsOf("a").ejections, 2u);
  // Its trial ends with a success: then it takes three failures again.
  LookTimes(8);
  fail();
  for (int i = 0; i < 8; ++i) static_cast<void>(LookNow());
  EXPECT_FALSE(FactsOf("a").ejected);
}

TEST_F(BalancingTest, AnswersOfTheServiceEjectNobody) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 2;
  Start({"a", "b"}, balancing);
  const absl::StatusCode harmless[] = {
      absl::StatusCode::kNotFound, absl::StatusCode::kInvalidArgument,
      absl::StatusCode::kResourceExhausted, absl::StatusCode::kAborted,
      absl::StatusCode::kPermissionDenied};
  for (const absl::StatusCode code : harmless) {
    for (int i = 0; i < 4; ++i) {
      machine("a").store.Next(StoreService::Fail(absl::Status(code, "no")));
    }
  }
  for (int i = 0; i < 60; ++i) static_cast<void>(LookNow());
  EXPECT_EQ(machine("a").calls(), 30u);
  EXPECT_EQ(FactsOf("a").failures, 0u);
}

TEST_F(BalancingTest, AServerThatHangsIsEjected) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 3;
  Start({"a", "b"}, balancing);
  for (int i = 0; i < 3; ++i) machine("a").store.Next(machine("a").store.Hold());
  int late = 0;
  for (int i = 0; i < 30; ++i) late += absl::IsDeadlineExceeded(LookNow({.timeout_us = 5000}));
  EXPECT_EQ(late, 3);
  EXPECT_TRUE(FactsOf("a").ejected);
}

TEST_F(BalancingTest, OnlyAShareOfTheServersIsEjected) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 2;
  balancing.ejection.max_percent = 50;
  Start({"a", "b", "c", "d"}, balancing);
  for (auto& [name, machine] : machines_) {
    for (int i = 0; i < 100; ++i) machine->store.Next(StoreService::Unavailable());
  }
  for (int i = 0; i < 60; ++i) static_cast<void>(LookNow());
  int ejected = 0;
  for (const ServerFacts& facts : ServersOf(*channel_)) ejected += facts.ejected;
  EXPECT_EQ(ejected, 2);
}

// What is ready and ejected is better than nothing.
TEST_F(BalancingTest, AnEjectedServerGetsCallsIfThereIsNoOther) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 1;
  Start({"a", "b"}, balancing);
  machine("a").store.Next(StoreService::Unavailable());
  for (int i = 0; i < 2; ++i) static_cast<void>(LookNow());
  ASSERT_TRUE(FactsOf("a").ejected);
  Kill("b");
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 1; }));
  EXPECT_TRUE(LookNow().ok());
}

TEST_F(BalancingTest, AServerThatFailsMoreOftenThanOthersIsEjected) {
  BalancingOptions balancing = InTurn();
  balancing.ejection.consecutive_failures = 0;
  balancing.ejection.interval_us = 1'000'000;
  Start({"a", "b", "c", "d", "e", "f"}, balancing);
  for (int i = 0; i < 60; ++i) {
    machine("a").store.Next(i % 2 == 0 ? StoreService::Unavailable() : StoreService::Echo());
  }
  for (int i = 0; i < 360; ++i) static_cast<void>(LookNow());
  EXPECT_TRUE(RunUntil([&] { return FactsOf("a").ejected; }));
  for (const char* name : {"b", "c", "d", "e", "f"}) EXPECT_FALSE(FactsOf(name).ejected) << name;
}

// --- the list changes ---------------------------------------------------------------------------

TEST_F(BalancingTest, AServerThatLeavesTheListFinishesItsCalls) {
  Start({"a", "b"}, InTurn());
  machine("a").store.Next(machine("a").store.Hold());
  RetriedOutcome& first = Look();
  RetriedOutcome& second = Look();
  network_.RunFor(kNsPerMs);
  StartServer("c");
  ASSERT_TRUE(SetServers(*channel_, Addresses({"b", "c"})).ok());
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2 && FactsOf("a").draining; }));
  LookTimes(10);
  EXPECT_EQ(machine("a").calls(), 1u);
  EXPECT_EQ(machine("b").calls() + machine("c").calls(), 11u);
  machine("a").store.End(0);
  EXPECT_TRUE(EndOf(first).ok());
  EXPECT_TRUE(EndOf(second).ok());
  EXPECT_TRUE(RunUntil([&] { return FactsOf("a").state == State::kShutdown; }));
  EXPECT_EQ(channel_->stats().calls_ok, 12u);  // those of a server that is no more are counted
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, ACallThatOutlastsTheDrainEnds) {
  BalancingOptions balancing = InTurn();
  balancing.drain_us = 500'000;
  Start({"a"}, balancing);
  machine("a").store.Next(machine("a").store.Hold());
  RetriedOutcome& held = Look();
  network_.RunFor(kNsPerMs);
  ASSERT_TRUE(SetServers(*channel_, {}).ok());
  network_.RunFor(400 * kNsPerMs);
  EXPECT_FALSE(held.done());
  const absl::Status status = EndOf(held);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(DeliveryOf(status), Delivery::kMayHaveRun);
  const absl::Status none = LookNow();
  EXPECT_TRUE(absl::IsUnavailable(none)) << none;
}

TEST_F(BalancingTest, AnAddressThatComesBackIsAServerAgain) {
  Start({"a", "b"}, InTurn());
  machine("a").store.Next(machine("a").store.Hold());
  RetriedOutcome& first = Look();
  RetriedOutcome& second = Look();
  network_.RunFor(kNsPerMs);
  ASSERT_TRUE(SetServers(*channel_, Addresses({"b"})).ok());
  ASSERT_TRUE(RunUntil([&] { return FactsOf("a").draining; }));
  ASSERT_TRUE(SetServers(*channel_, Addresses({"a", "b"})).ok());
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2; }));
  LookTimes(10);
  EXPECT_EQ(machine("a").calls(), 6u);
  machine("a").store.End(0);
  EXPECT_TRUE(EndOf(first).ok());
  EXPECT_TRUE(EndOf(second).ok());
}

// The target's own list is said by a timer: it does not come after what was set before.
TEST_F(BalancingTest, AListThatIsSetAtOnceStands) {
  StartServers({"a", "b"});
  ChannelOptions options;
  options.connect_at_once = false;
  Open("list:sim:a", InTurn(), options);
  ASSERT_TRUE(SetServers(*channel_, Addresses({"b"})).ok());
  LookTimes(4);
  EXPECT_EQ(machine("b").calls(), 4u);
  EXPECT_EQ(ServersOf(*channel_).size(), 1u);
}

TEST_F(BalancingTest, AListOfOtherOrderChangesNoConnection) {
  Start({"a", "b", "c"}, InTurn());
  const uint64_t connects = channel_->stats().connects;
  ASSERT_TRUE(SetServers(*channel_, Addresses({"c", "a", "b", "a"})).ok());
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(ServersOf(*channel_).size(), 3u);
  EXPECT_EQ(channel_->stats().connects, connects);
}

// --- random faults ------------------------------------------------------------------------------

// Calls of all forms while servers die, come back, hang, fail and leave the list: each ends once,
// and nothing is left.
TEST_F(BalancingTest, EveryCallEndsOnceWhateverHappensToServers) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const std::vector<std::string> names = {"a", "b", "c", "d", "e"};
    BalancingOptions balancing;
    balancing.policy = static_cast<BalancingPolicy>(1 + random.Uniform(3));
    balancing.drain_us = 20'000;
    balancing.ejection.consecutive_failures = 2;
    balancing.ejection.ejection_us = 10'000;
    balancing.ejection.interval_us = 50'000;
    ChannelOptions options;
    options.retry.max_attempts = 1 + static_cast<uint32_t>(random.Uniform(4));
    if (options.retry.max_attempts > 1 && random.Chance(0.5)) options.retry.hedge_after_us = 2000;
    options.max_outstanding_calls = 1 + static_cast<uint32_t>(random.Uniform(4));
    options.min_backoff_us = 1000;
    options.max_backoff_us = 5000;
    options.connect_at_once = false;
    StartServers(names);
    Open(ListOf(names), balancing, options);
    std::deque<ClientContext> contexts;
    std::optional<Streams::Stub> streams(std::in_place, *channel_);
    std::deque<ClientReaderWriter<Data, Data>> talks;
    for (int step = 0; step < 300; ++step) {
      const std::string& name = names[random.Uniform(names.size())];
      const bool runs = machines_.count(name) > 0;
      const uint64_t event = random.Uniform(100);
      if (event < 60) {
        CallOptions call;
        if (random.Chance(0.5)) call.timeout_us = random.UniformInRange(100, 20'000);
        call.server_key = random.Uniform(4);
        call.no_retry = random.Chance(0.2);
        if (random.Chance(0.2)) call.context = &contexts.emplace_back();
        Look(call);
      } else if (event < 65 && !contexts.empty()) {
        static_cast<void>(contexts[random.Uniform(contexts.size())].Cancel());
      } else if (event < 70) {
        talks.push_back(streams->Talk({.server_key = random.Uniform(4)}));
        if (talks.size() > 4) talks.pop_front();
      } else if (event < 78 && runs) {
        StoreService& store = machine(name).store;
        store.Next(random.Chance(0.5) ? store.Hold() : StoreService::Unavailable());
      } else if (event < 84 && runs && !machine(name).store.held.empty()) {
        machine(name).store.held.pop_front();
      } else if (event < 88) {
        runs ? Kill(name) : StartServer(name);
      } else if (event < 92) {
        std::vector<std::string> listed;
        for (const std::string& one : names) {
          if (random.Chance(0.7)) listed.push_back(one);
        }
        ASSERT_TRUE(SetServers(*channel_, Addresses(listed)).ok());
      } else {
        network_.RunFor(random.Uniform(5 * kNsPerMs));
      }
    }
    talks.clear();
    for (const std::string& name : names) {
      if (machines_.count(name) == 0) StartServer(name);
      machine(name).store.ForgetScript();
      machine(name).store.held.clear();
      machine(name).streams.talks.clear();
    }
    ASSERT_TRUE(SetServers(*channel_, Addresses(names)).ok());
    ASSERT_TRUE(RunUntil([&] {
      return std::all_of(outcomes_.begin(), outcomes_.end(),
                         [](const auto& o) { return o.done(); });
    }));
    ASSERT_TRUE(RunUntil([&] { return CountReady() == names.size(); }));
    LookTimes(5);
    ExpectNothingIsLeft();
    streams.reset();
    stub_.reset();
    channel_.reset();
    for (const RetriedOutcome& outcome : outcomes_) EXPECT_EQ(outcome.completions, 1);
    outcomes_.clear();
    for (const std::string& name : names) Kill(name);
  }
}

// --- streams, and what stays with one server ----------------------------------------------------

TEST_F(BalancingTest, StreamsGoToAllServers) {
  Start({"a", "b"}, InTurn());
  const Streams::Stub streams(*channel_);
  {
    auto one = streams.Talk({});
    auto other = streams.Talk({});
    ASSERT_TRUE(RunUntil([&] {
      return machine("a").streams.talks.size() + machine("b").streams.talks.size() == 2;
    }));
    EXPECT_EQ(machine("a").streams.talks.size(), 1u);
    EXPECT_EQ(channel_->stats().streams, 2u);
    for (auto& [name, machine] : machines_) {
      machine->streams.talks.front().Finish(absl::OkStatus());
      machine->streams.talks.clear();
    }
    EXPECT_TRUE(one.Finish().ok());
    EXPECT_TRUE(other.Finish().ok());
  }
  ExpectNothingIsLeft();
}

// The handle of a stream may be kept for longer than its server's connection, and than the server.
TEST_F(BalancingTest, AStreamEndsWithItsServerAndItsHandleStays) {
  BalancingOptions balancing = InTurn();
  balancing.drain_us = 100'000;
  Start({"a"}, balancing);
  const Streams::Stub streams(*channel_);
  {
    auto talk = streams.Talk({});
    ASSERT_TRUE(talk.Write(MakeData(1, 10)));
    ASSERT_TRUE(RunUntil([&] { return machine("a").streams.talks.size() == 1; }));
    StartServer("b");
    ASSERT_TRUE(SetServers(*channel_, Addresses({"b"})).ok());
    ASSERT_TRUE(RunUntil([&] { return FactsOf("a").state == State::kShutdown; }));
    EXPECT_TRUE(absl::IsUnavailable(talk.Finish()));
  }
  machine("a").streams.talks.clear();
  LookTimes(1);
  EXPECT_EQ(machine("b").calls(), 1u);
  ExpectNothingIsLeft();
}

// A stream waited for a slot of the server that had been chosen for it: also when that server died
// and another one had slots; and when the list dropped it, the stream was cancelled.
TEST_F(BalancingTest, AStreamWithoutASlotWaitsForAnyServer) {
  ChannelOptions options;
  options.max_streams = 1;
  Start({"a", "b"}, InTurn(), options);
  const Streams::Stub streams(*channel_);
  {
    auto one = streams.Talk({});
    auto other = streams.Talk({});
    ASSERT_TRUE(RunUntil([&] {
      return machine("a").streams.talks.size() == 1 && machine("b").streams.talks.size() == 1;
    }));
    auto third = streams.Talk({.wait_for_server = true});
    auto fourth = streams.Talk({.wait_for_server = true});
    Kill("a");
    // b has one slot, and one stream after the other goes there.
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(RunUntil([&] { return !machine("b").streams.talks.empty(); })) << i;
      machine("b").streams.talks.front().Finish(absl::OkStatus());
      machine("b").streams.talks.clear();
    }
    EXPECT_NE(absl::IsUnavailable(one.Finish()), absl::IsUnavailable(other.Finish()));
    EXPECT_TRUE(third.Finish().ok());
    EXPECT_TRUE(fourth.Finish().ok());
  }
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, AStreamWaitsForTheFirstServer) {
  ChannelOptions options;
  options.connect_at_once = false;
  Open("list:sim:a", InTurn(), options);
  const Streams::Stub streams(*channel_);
  {
    auto refused = streams.Talk({});
    EXPECT_TRUE(absl::IsUnavailable(refused.Finish()));
    auto talk = streams.Talk({.wait_for_server = true});
    StartServer("a");
    ASSERT_TRUE(RunUntil([&] { return machine("a").streams.talks.size() == 1; }));
    machine("a").streams.talks.front().Finish(absl::OkStatus());
    machine("a").streams.talks.clear();
    EXPECT_TRUE(talk.Finish().ok());
  }
  ExpectNothingIsLeft();
}

TEST_F(BalancingTest, RefusesWhatBelongsToOneServer) {
  Start({"a"});
  const absl::Status memory = RemoteMemory::Open(*channel_, RemoteRegion()).status();
  EXPECT_FALSE(memory.ok());
  ChannelOptions once = Retrying();
  once.retry.exactly_once = true;
  const absl::Status status = OpenBalanced(client(), "list:sim:a", once).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

TEST_F(BalancingTest, SaysWhatIsWrongWithATargetOrAnOption) {
  for (const char* target : {"", "sim:a", "list", "list:a,b", "list:sim:a@", "file:relative"}) {
    const absl::Status status = OpenBalanced(client(), target).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << target << ": " << status;
  }
  const auto refused = [&](void (*change)(BalancingOptions&)) {
    BalancingOptions balancing;
    change(balancing);
    return absl::IsInvalidArgument(OpenBalanced(client(), "list:sim:a", {}, balancing).status());
  };
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.max_servers = 0; }));
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.max_servers = kMaxServers + 1; }));
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.policy = {}; }));
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.min_local_percent = 101; }));
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.refresh_us = 0; }));
  EXPECT_TRUE(refused([](BalancingOptions& b) { b.ejection.max_ejection_us = 1; }));
  StartServer("a");
  auto plain = *Channel::Open(client(), "sim:a");
  EXPECT_TRUE(absl::IsFailedPrecondition(SetServers(*plain, Addresses({"a"}))));
  EXPECT_TRUE(ServersOf(*plain).empty());
}

TEST_F(BalancingTest, TellsOfItsStateAndExplains) {
  StartServers({"a", "b"});
  ChannelOptions options;
  options.connect_at_once = false;
  Open("list:sim:a,sim:b@there", InTurn(), options);
  std::vector<State> states;
  auto watch = channel_->WatchState([&](State state) { states.push_back(state); });
  ASSERT_TRUE(watch.ok());
  ASSERT_TRUE(RunUntil([&] { return CountReady() == 2 && states.back() == State::kReady; }));
  LookTimes(2);
  const std::string text = channel_->Explain();
  EXPECT_NE(text.find("sim:b in zone there: ready, 0 under way, 1 ok, 0 failures"),
            std::string::npos)
      << text;
  Kill("a");
  Kill("b");
  EXPECT_TRUE(RunUntil([&] { return states.back() == State::kTransientFailure; }));
}

}  // namespace
}  // namespace weft::test
