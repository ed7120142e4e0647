// A channel over as many servers as there may be: what it costs to know who may be chosen, counted
// in servers looked at. On a simulated network.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "core/strings.h"
#include "rpc/client/balancer.h"
#include "rpc/client/balancing.h"
#include "rpc/client/client_connection.h"
#include "rpc/server/server.h"
#include "rpc/testing/retry_test.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr uint32_t kServers = kMaxServers;

class ManyServersTest : public testing::Test {
 protected:
  ~ManyServersTest() override {
    stub_.reset();
    channel_.reset();
    servers_.clear();
  }

  // Two machines have all of them: half of the addresses each.
  void Start() {
    ServerOptions options;
    options.max_connections = kServers;
    options.max_connections_of_one = kServers;
    std::vector<ListedServer> list;
    for (uint32_t number = 0; number < kServers; ++number) {
      if (number % (kServers / 2) == 0) {
        servers_.push_back(*Server::Create(network_.Node(NodeOf(number)), options));
        ASSERT_TRUE(servers_.back()->AddService(&store_).ok());
      }
      list.push_back({StrCat("sim:server-", number)});
      ASSERT_TRUE(servers_.back()->Listen(list.back().address).ok());
    }
    BalancingOptions balancing;
    balancing.max_servers = kServers;
    ChannelOptions connect_later;
    connect_later.connect_at_once = false;
    channel_ = *OpenBalanced(network_.Node("client"), "list:", connect_later, balancing);
    stub_.emplace(*channel_);
    ASSERT_TRUE(SetServers(*channel_, list).ok());
    ASSERT_TRUE(RunUntil([this] {
      return servers_[0]->stats().connections + servers_[1]->stats().connections == kServers;
    }));
    network_.RunFor(kNsPerSec);
    ASSERT_EQ(CountReady(), kServers);
  }
  static std::string NodeOf(uint32_t number) {
    return number < kServers / 2 ? "first half" : "second half";
  }
  bool RunUntil(Function<bool()> done) {
    return network_.RunUntil(std::move(done), 100 * kNsPerSec);
  }
  uint32_t CountReady() {
    const std::vector<ServerFacts> facts = ServersOf(*channel_);
    return static_cast<uint32_t>(std::count_if(facts.begin(), facts.end(), [](const auto& one) {
      return one.state == ChannelState::kReady;
    }));
  }
  uint64_t Looked() { return internal::ConnectionOf(*channel_).balancer()->servers_looked_at(); }
  absl::Status Look() {
    RetriedOutcome outcome;
    stub_->Look(MakeData(7, 10), &outcome.reply, {}, outcome.Callback(network_.clock()));
    EXPECT_TRUE(RunUntil([&] { return outcome.done(); }));
    return outcome.status;
  }

  SimNetwork network_{1};
  StoreService store_{&network_.clock()};
  std::vector<std::unique_ptr<Server>> servers_;
  std::unique_ptr<Channel> channel_;
  std::optional<Store::Stub> stub_;
};

TEST_F(ManyServersTest, AChangeIsOneLookAtEachServerAtMostAndACallIsNone) {
  Start();
  // The list is one change, and each that has connected is one.
  const uint64_t connected = Looked();
  EXPECT_LE(connected, (kServers + 1) * uint64_t{kServers});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Look(), absl::OkStatus());
  EXPECT_EQ(Looked(), connected);

  // A machine dies with half of them, and each that is lost is a change. The attempts to connect
  // again, which fail, are none.
  network_.Kill("second half");
  network_.RunFor(20 * kNsPerSec);
  ASSERT_EQ(CountReady(), kServers / 2);
  const uint64_t lost = Looked();
  EXPECT_LE(lost - connected, kServers / 2 * uint64_t{kServers});
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Look(), absl::OkStatus());
  EXPECT_EQ(Looked(), lost);
}

TEST_F(ManyServersTest, AListThatDropsNearlyAllIsOneLookAtThoseThatAreLeft) {
  Start();
  const uint64_t connected = Looked();
  ASSERT_TRUE(SetServers(*channel_, {ListedServer{"sim:server-1"}}).ok());
  network_.RunFor(40 * kNsPerSec);
  EXPECT_EQ(ServersOf(*channel_).size(), 1u) << "the others have drained";
  EXPECT_EQ(Looked() - connected, 1u);
  EXPECT_EQ(Look(), absl::OkStatus());
}

}  // namespace
}  // namespace weft::test
