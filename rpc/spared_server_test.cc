// A server that has just refused a call is spared for a while: who gets its share of the calls.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "rpc/client/balancing.h"
#include "rpc/server/server.h"
#include "rpc/testing/retry_test.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

class SparedServerTest : public testing::Test {
 protected:
  struct Machine {
    explicit Machine(Clock* clock) : store(clock) {}

    StoreService store;
    std::unique_ptr<Server> server;
    size_t calls() const { return store.seen.size(); }
  };

  ~SparedServerTest() override {
    for (auto& [name, machine] : machines_) machine->store.held.clear();
    other_.reset();
    channel_.reset();
    machines_.clear();
  }

  // "full" has the only call that it takes, of somebody else; the others take all.
  void Start(const std::vector<std::string>& others) {
    ServerOptions limited;
    limited.limits.per_method = {{"weft.test.Store/Look", 1}};
    StartServer("full", limited);
    std::string list = "list:sim:full";
    for (const std::string& name : others) {
      StartServer(name, {});
      list += ",sim:" + name;
    }
    other_ = *Channel::Open(network_.Node("client"), "sim:full");
    machine("full").store.Next(machine("full").store.Hold());
    Look(*other_);
    ASSERT_TRUE(RunUntil([&] { return machine("full").store.held.size() == 1; }));
    BalancingOptions balancing;
    balancing.client_number = 7;  // draws the same in each run
    channel_ = *OpenBalanced(network_.Node("client"), list, {}, balancing);
    ASSERT_TRUE(RunUntil([&] {
      const auto facts = ServersOf(*channel_);
      return std::all_of(facts.begin(), facts.end(),
                         [](const auto& f) { return f.state == ChannelState::kReady; });
    }));
  }
  void StartServer(const std::string& name, const ServerOptions& options) {
    auto machine = std::make_unique<Machine>(&network_.clock());
    machine->server = *Server::Create(network_.Node(name), options);
    ASSERT_TRUE(machine->server->AddService(&machine->store).ok());
    ASSERT_TRUE(machine->server->Listen("sim:" + name).ok());
    machines_[name] = std::move(machine);
  }
  Machine& machine(const std::string& name) { return *machines_.at(name); }

  RetriedOutcome& Look(Channel& channel) {
    RetriedOutcome& outcome = outcomes_.emplace_back();
    Store::Stub(channel).Look(MakeData(7, 10), &outcome.reply, {},
                              outcome.Callback(network_.clock()));
    return outcome;
  }
  bool RunUntil(Function<bool()> done) {
    return network_.RunUntil(std::move(done), 100 * kNsPerSec);
  }
  // Until "full" has refused a call.
  void MeetRefusal() {
    for (int i = 0; i < 100; ++i) {
      const RetriedOutcome& outcome = Look(*channel_);
      ASSERT_TRUE(RunUntil([&] { return outcome.done(); }));
      if (!outcome.status.ok()) return;
    }
    FAIL() << "it has refused none";
  }

  SimNetwork network_{1};
  std::map<std::string, std::unique_ptr<Machine>> machines_;
  std::deque<RetriedOutcome> outcomes_;
  std::unique_ptr<Channel> other_;
  std::unique_ptr<Channel> channel_;
};

// The next one in the list got the whole share of the one that was spared, and that was large: who
// refuses has nothing under way, and won nearly every draw. Of 60 calls "a" had 30, and "b" and "c"
// had 15 each.
TEST_F(SparedServerTest, ItsShareIsSpreadOverAllOthers) {
  const std::vector<std::string> others = {"a", "b", "c"};
  Start(others);
  MeetRefusal();
  std::map<std::string, size_t> before;
  for (const std::string& name : others) before[name] = machine(name).calls();
  const size_t first = outcomes_.size();
  // All at the same time: each is under way while the next one chooses.
  for (int i = 0; i < 60; ++i) Look(*channel_);
  ASSERT_TRUE(RunUntil([&] {
    return std::all_of(outcomes_.begin() + static_cast<ptrdiff_t>(first), outcomes_.end(),
                       [](const auto& outcome) { return outcome.done(); });
  }));
  for (const std::string& name : others) {
    const size_t calls = machine(name).calls() - before[name];
    EXPECT_GE(calls, 16u) << name;
    EXPECT_LE(calls, 24u) << name;
  }
}

// With all others spared too, the one that is left has all calls, wherever it stands.
TEST_F(SparedServerTest, TheOnlyOneThatIsNotSparedIsFound) {
  Start({"a"});
  MeetRefusal();
  const size_t before = machine("a").calls();
  for (int i = 0; i < 20; ++i) Look(*channel_);
  ASSERT_TRUE(RunUntil([&] { return outcomes_.back().done(); }));
  EXPECT_EQ(machine("a").calls(), before + 20);
}

}  // namespace
}  // namespace weft::test
