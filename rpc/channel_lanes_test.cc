// A channel on several engines, on a simulated network: calls go by other lanes while one has no
// connection.
#include "rpc/client/channel_lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/strings.h"
#include "rpc/client/balancing.h"
#include "rpc/client/bulk_call.h"
#include "rpc/server/server.h"
#include "rpc/testing/lanes_test.h"
#include "weft/status.h"

namespace weft::test {
namespace {

using ChannelLanesTest = LanesTest;

// --- which lanes are ready, and which away ------------------------------------------------------

TEST(LaneStates, AnotherReadyOneIsTheNextGoingRound) {
  LaneStates states;
  EXPECT_EQ(states.ReadyBehind(5), 5u) << "there is none";
  states.SetReady(5, true);
  EXPECT_EQ(states.ReadyBehind(5), 5u) << "there is no other";
  states.SetReady(2, true);
  states.SetReady(63, true);
  EXPECT_EQ(states.ReadyBehind(2), 5u);
  EXPECT_EQ(states.ReadyBehind(5), 63u);
  EXPECT_EQ(states.ReadyBehind(62), 63u);
  EXPECT_EQ(states.ReadyBehind(63), 2u);
  states.SetReady(63, false);
  EXPECT_EQ(states.ReadyBehind(5), 2u);
}

TEST(LaneStates, OneIsAwayOnlyWhileItIsNotReadyAndAnotherIs) {
  LaneStates states;
  states.SetAway(1, /*may_stand_aside=*/true);
  EXPECT_FALSE(states.IsAway(1)) << "no other is ready";
  states.SetReady(0, true);
  states.SetAway(1, /*may_stand_aside=*/true);
  EXPECT_TRUE(states.IsAway(1));
  EXPECT_FALSE(states.IsAway(0));
  states.SetReady(1, true);
  EXPECT_FALSE(states.IsAway(1));
  states.SetReady(1, false);
  EXPECT_FALSE(states.IsAway(1)) << "it has not said so";
  states.SetAway(1, /*may_stand_aside=*/false);
  EXPECT_FALSE(states.IsAway(1));
}

// --- calls ---------------------------------------------------------------------------------------

TEST_F(ChannelLanesTest, CallsGoByAnotherLaneWhileOneHasNoConnection) {
  Open();
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  CutHome();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  EXPECT_EQ(CallsOf(next_), 10u);
  EXPECT_EQ(&channel_->here(), &Lane(home_)) << "what is made with the channel stays where it was";
  EXPECT_NE(channel_->state(), ChannelState::kReady);

  network_.Heal(Name(home_), "server");
  ASSERT_TRUE(RunUntil([&] { return lanes().states().IsReady(home_); })) << "it tries by itself";
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 2u);
  EXPECT_EQ(channel_->stats().connects, kLanes + 1);
}

TEST_F(ChannelLanesTest, SoDoCallsWithCallbacks) {
  Open();
  CutHome();
  Outcome outcome;
  stub_->Echo(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  EXPECT_FALSE(outcome.done());
  ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
  EXPECT_EQ(*outcome.status, absl::OkStatus());
  EXPECT_EQ(CallsOf(next_), 1u);
}

// A loss is one of the calls that were under way, and of no others.
TEST_F(ChannelLanesTest, CallsThatWereSentEndAndThoseOfOtherLanesGoOn) {
  Open();
  Outcome lost;
  Outcome held;
  stub_->Hold(MakeData(1, 10), &lost.reply, {}, lost.Callback());
  Probe::Stub(Lane(next_)).Hold(MakeData(2, 10), &held.reply, {}, held.Callback());
  ASSERT_TRUE(RunUntil([&] { return service_.held.size() == 2; }));
  network_.Partition(Name(home_), "server");
  ASSERT_TRUE(RunUntil([&] { return lost.done(); }));
  EXPECT_TRUE(absl::IsUnavailable(*lost.status)) << *lost.status;
  EXPECT_EQ(DeliveryOf(*lost.status), Delivery::kMayHaveRun);
  EXPECT_FALSE(held.done());
  while (!service_.held.empty()) service_.Release();
  ASSERT_TRUE(RunUntil([&] { return held.done(); }));
  EXPECT_EQ(*held.status, absl::OkStatus());
  EXPECT_EQ(Echo(), absl::OkStatus());
}

TEST_F(ChannelLanesTest, WhenTheSecondIsLostTheThirdHasTheCalls) {
  Open();
  CutHome();
  EXPECT_EQ(Echo(), absl::OkStatus());
  network_.Partition(Name(next_), "server");
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf((home_ + 2) % kLanes), 1u);
}

// Then they are what they are on one engine: they wait for their own, or end.
TEST_F(ChannelLanesTest, WithoutAnyConnectionCallsStayWhereTheyAre) {
  Open();
  KillServer();
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  network_.RunFor(10 * kNsPerSec);
  for (uint32_t lane = 0; lane < kLanes; ++lane) EXPECT_FALSE(lanes().states().IsAway(lane));
  EXPECT_TRUE(absl::IsUnavailable(Echo()));
  StartServer();
  EXPECT_EQ(Echo({.wait_for_server = true}), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
}

TEST_F(ChannelLanesTest, ALaneThatHasNotConnectedConnectsWithItsFirstCall) {
  Open({.connect_at_once = false});
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  EXPECT_EQ(channel_->stats().connects, 1u);
  network_.RunFor(10 * kNsPerSec);
  EXPECT_EQ(channel_->stats().connects, 1u) << "nobody has called by the others";
}

// The memory is one engine's.
TEST_F(ChannelLanesTest, ACallThatLendsMemoryStaysOnItsLane) {
  Open();
  CutHome();
  BulkCall bulk(*channel_);
  const absl::Status status = Echo({.bulk = &bulk});
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_EQ(CallsOf(next_), 0u);
}

TEST_F(ChannelLanesTest, AChannelMayEndWhileALaneIsAway) {
  Open();
  CutHome();
  Outcome outcome;
  stub_->Hold(MakeData(1, 10), &outcome.reply, {}, outcome.Callback());
  ASSERT_TRUE(RunUntil([&] { return !service_.held.empty(); }));
  channel_.reset();
  EXPECT_TRUE(absl::IsCancelled(*outcome.status)) << *outcome.status;
}

// A list of one engine made a front of one lane, which each call went by, and one engine did not.
TEST_F(ChannelLanesTest, AChannelOnOneEngineIsItsOnlyLane) {
  StartServer();
  auto channel = Channel::Open(std::vector<Engine*>{&network_.Node("only")}, "sim:server");
  ASSERT_TRUE(channel.ok()) << channel.status();
  EXPECT_EQ(internal::LanesOf(**channel), nullptr);
  channel_ = *std::move(channel);
  stub_.emplace(*channel_);
  EXPECT_EQ(Echo(), absl::OkStatus());
}

// --- over many servers --------------------------------------------------------------------------

// Each lane has a connection to each server.
class BalancedLanesTest : public LanesTest {
 protected:
  struct Machine {
    ProbeService service;
    std::unique_ptr<Server> server;
  };

  ~BalancedLanesTest() override {
    stub_.reset();
    channel_.reset();
  }

  void OpenOver(const std::vector<std::string>& names, const BalancingOptions& balancing = {}) {
    std::string target = "list:";
    for (const std::string& name : names) {
      Machine& machine = machines_[name];
      machine.server = *Server::Create(network_.Node(name));
      ASSERT_TRUE(machine.server->AddService(&machine.service).ok());
      ASSERT_TRUE(machine.server->Listen("sim:" + name).ok());
      absl::StrAppend(&target, target.back() == ':' ? "sim:" : ",sim:", name);
    }
    std::vector<Engine*> engines;
    for (uint32_t lane = 0; lane < kLanes; ++lane) engines.push_back(&network_.Node(Name(lane)));
    network_.Node("onlooker");  // as in Open()
    auto channel = OpenBalanced(engines, target, {}, balancing);
    ASSERT_TRUE(channel.ok()) << channel.status();
    channel_ = *std::move(channel);
    stub_.emplace(*channel_);
    home_ = lanes().NumberOfThisThread();
    next_ = (home_ + 1) % kLanes;
    ASSERT_TRUE(RunUntil([this] { return AllAreReady(); }));
  }
  bool AllAreReady() {
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (const ServerFacts& facts : ServersOf(Lane(lane))) {
        if (facts.state != ChannelState::kReady) return false;
      }
    }
    return true;
  }
  // The lane's servers that are not drained, by name.
  std::vector<std::string> ServersBy(uint32_t lane) {
    std::vector<std::string> names;
    for (const ServerFacts& facts : ServersOf(Lane(lane))) {
      if (!facts.draining) names.push_back(facts.server.address.substr(4));
    }
    return names;
  }
  ChannelState StateBy(uint32_t lane, const std::string& name) {
    for (const ServerFacts& facts : ServersOf(Lane(lane))) {
      if (facts.server.address == "sim:" + name) return facts.state;
    }
    return ChannelState::kShutdown;
  }
  int Echoes(const std::string& name) { return machines_.at(name).service.echoes; }

  std::map<std::string, Machine> machines_;
};

TEST_F(BalancedLanesTest, EachLaneHasAConnectionToEachServer) {
  OpenOver({"a", "b"}, {.policy = BalancingPolicy::kRoundRobin});
  for (auto& [name, machine] : machines_) {
    EXPECT_EQ(machine.server->stats().connections, kLanes) << name;
  }
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 10u);
  EXPECT_EQ(Echoes("a"), 5);
  EXPECT_EQ(Echoes("b"), 5);
  // What was bound for one lane is bound for the servers of all.
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    Data reply;
    EXPECT_EQ(Probe::Stub(Lane(lane)).Echo(MakeData(1, 10), &reply), absl::OkStatus()) << lane;
  }
  EXPECT_EQ(channel_->stats().calls_ok, 13u);
}

TEST_F(BalancedLanesTest, CallsGoByAnotherLaneWhileOneHasNoServer) {
  OpenOver({"a", "b"});
  network_.Partition(Name(home_), "a");
  ASSERT_TRUE(RunUntil([this] { return StateBy(home_, "a") != ChannelState::kReady; }));
  EXPECT_FALSE(lanes().states().IsAway(home_)) << "it has another one";
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  network_.Partition(Name(home_), "b");
  ASSERT_TRUE(RunUntil([this] { return lanes().states().IsAway(home_); }));
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 1u);
  EXPECT_EQ(CallsOf(next_), 10u);
  network_.Heal(Name(home_), "b");
  ASSERT_TRUE(RunUntil([this] { return lanes().states().IsReady(home_); })) << "it tries by itself";
  EXPECT_FALSE(lanes().states().IsAway(home_));
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 2u);
}

// A lane that lost its servers while no other had one never stood aside when another was back.
TEST_F(BalancedLanesTest, WhenAllAreLostCallsGoByTheOneThatComesBack) {
  OpenOver({"a"});
  const uint32_t last = (home_ + 2) % kLanes;
  for (const uint32_t lane : {next_, last, home_}) {
    network_.Partition(Name(lane), "a");
    ASSERT_TRUE(RunUntil([&] { return !lanes().states().IsReady(lane); }));
  }
  EXPECT_FALSE(lanes().states().IsAway(home_)) << "no other was ready";
  network_.Heal(Name(next_), "a");
  ASSERT_TRUE(RunUntil([this] { return lanes().states().IsReady(next_); }));
  ASSERT_TRUE(RunUntil([this] { return lanes().states().IsAway(home_); }));
  EXPECT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(CallsOf(home_), 0u);
  EXPECT_EQ(CallsOf(next_), 1u);
}

// Each lane drew a part of a long list by itself, and a key had as many servers as there are lanes.
TEST_F(BalancedLanesTest, EqualKeysGoToOneServerByWhicheverLane) {
  const std::vector<std::string> names = {"a", "b", "c", "d", "e", "f"};
  OpenOver(names, {.policy = BalancingPolicy::kConsistentHash, .max_servers = 2});
  for (uint32_t lane = 1; lane < kLanes; ++lane) EXPECT_EQ(ServersBy(lane), ServersBy(0));
  for (int i = 0; i < 20; ++i) {
    const CallOptions options = {.server_key = ServerKeyOf(StrCat("key ", i))};
    std::map<std::string, int> before;
    for (const std::string& name : names) before[name] = Echoes(name);
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      Data reply;
      ASSERT_EQ(Probe::Stub(Lane(lane)).Echo(MakeData(1, 10), &reply, options), absl::OkStatus());
    }
    const auto have_some = std::count_if(names.begin(), names.end(), [&](const std::string& name) {
      return Echoes(name) != before[name];
    });
    EXPECT_EQ(have_some, 1) << i;
  }
}

TEST_F(BalancedLanesTest, AListThatTheProgramNamesIsForAllLanes) {
  OpenOver({"a", "b"});
  ASSERT_EQ(SetServers(*channel_, {ListedServer{"sim:b"}}), absl::OkStatus());
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    ASSERT_TRUE(RunUntil([&] { return ServersBy(lane) == std::vector<std::string>({"b"}); }));
  }
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Echo(), absl::OkStatus());
  EXPECT_EQ(Echoes("a"), 0);
}

TEST_F(BalancedLanesTest, InsideACallbackOfALaneNoListIsNamedToTheOthers) {
  OpenOver({"a"});
  Data reply;
  bool done = false;
  stub_->Echo(MakeData(1, 10), &reply, {}, [&](absl::Status) {
    const absl::Status status = SetServers(*channel_, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(ToStd(status.message()).find("SetServers() on 3 engines, inside a callback"),
              std::string_view::npos)
        << status;
    done = true;
  });
  ASSERT_TRUE(RunUntil([&] { return done; }));
  EXPECT_EQ(Echo(), absl::OkStatus());
}

TEST_F(BalancedLanesTest, EnginesThatDoNotFitAreRefused) {
  Engine* const one = &network_.Node("one");
  for (const std::vector<Engine*>& engines : {std::vector<Engine*>{}, {one, nullptr}, {one, one}}) {
    const absl::Status status = OpenBalanced(engines, "list:sim:a").status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_NE(ToStd(status.message()).find("OpenBalanced on"), std::string_view::npos) << status;
  }
  const absl::Status both =
      OpenBalanced(std::vector<Engine*>{one}, "list:sim:a", {.engines = 2}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(both)) << both;
  EXPECT_NE(ToStd(both.message()).find("1 where the engines are given"), std::string_view::npos);
}

}  // namespace
}  // namespace weft::test
