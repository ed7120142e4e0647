// What tests of random faults have in common: the seeds, and a simulated network of some clients
// and of servers that take each other's place.
//
//   TEST(FaultsTest, NothingIsLost) { ForEachSeed(60, [](uint64_t seed) { Faults(seed).Run(); }); }
//   int main(int argc, char** argv) { return weft::test::RunWithSeeds(argc, argv); }
//
// Replay a failure: PROGRAM --seed=N. Many seeds: --seeds=N, beginning with --first=N.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/random.h"
#include "rpc/client/channel.h"
#include "rpc/server/server.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_network.h"
#include "weft/status.h"

namespace weft::test {

struct Seeds {
  uint64_t first = 1;
  uint64_t count = 0;  // 0: as many as the test wants
  bool one = false;    // a failure is replayed: what many seeds come to is not to be expected
};
inline Seeds& GivenSeeds() {
  static Seeds seeds;
  return seeds;
}

// Runs all tests with the seeds that the command line gives.
inline int RunWithSeeds(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  Seeds& seeds = GivenSeeds();
  for (int i = 1; i < argc; ++i) {
    const std::string_view flag = argv[i];
    const size_t equals = flag.find('=');
    if (equals == std::string_view::npos) continue;
    const uint64_t value = std::strtoull(argv[i] + equals + 1, nullptr, 10);
    if (flag.starts_with("--seed=")) seeds = {value, 1, true};
    if (flag.starts_with("--seeds=")) seeds.count = value;
    if (flag.starts_with("--first=")) seeds.first = value;
  }
  return RUN_ALL_TESTS();
}

// Calls run(seed) until one fails. `usual`: so many, if the command line does not say. Returns how
// many have run; 0: one has failed, or a failure was replayed.
template <class Run>
uint64_t ForEachSeed(uint64_t usual, Run run) {
  const Seeds& seeds = GivenSeeds();
  const uint64_t count = seeds.count != 0 ? seeds.count : usual;
  for (uint64_t seed = seeds.first; seed < seeds.first + count; ++seed) {
    SCOPED_TRACE(testing::Message() << "replay with --seed=" << seed);
    run(seed);
    if (testing::Test::HasFailure()) return 0;
  }
  return seeds.one ? 0 : count;
}

class RandomWorld {
 protected:
  explicit RandomWorld(uint64_t seed, const SimOptions& options = {})
      : random_(seed), network_(seed, options) {}
  ~RandomWorld() = default;

  uint32_t Draw(uint64_t least, uint64_t most) {
    return static_cast<uint32_t>(random_.UniformInRange(least, most));
  }

  // The machines: "client0", ...; "server0", and those that take its place, the last of which
  // lives.
  static std::string ClientName(int i) { return "client" + std::to_string(i); }
  const std::string& server_node() const { return server_node_; }
  const std::string& TakeServerNode() {
    return server_node_ = "server" + std::to_string(servers_++);
  }
  Engine& ClientNode(int client) { return network_.Node(ClientName(client)); }

  ServerOptions DrawServerOptions() {
    ServerOptions options;
    options.max_outstanding_calls = Draw(1, 40);
    options.link.window_slots = Draw(4, 16);
    return options;
  }
  ChannelOptions DrawChannelOptions() {
    ChannelOptions options;
    options.connect_at_once = false;
    options.max_outstanding_calls = Draw(1, 32);
    options.max_queued_calls = Draw(0, 64);
    options.link.window_slots = Draw(4, 16);
    return options;
  }

  // Another machine is to listen at its address.
  void KillServer() {
    network_.Kill(server_node());
    network_.fabric().RemoveListener("server", network_.fabric().IdOf(server_node()));
  }
  void Heal(int client) { network_.Heal(ClientName(client), server_node()); }

  // One of the last calls; it may have ended.
  template <class Call>
  void CancelOneOf(const std::deque<std::unique_ptr<Call>>& calls) {
    if (calls.empty()) return;
    Call& call = *calls[calls.size() - 1 - random_.Uniform(std::min<size_t>(calls.size(), 20))];
    if (call.context == nullptr) return;
    EXPECT_TRUE(call.context->Cancel().ok());
  }

  // What a caller was told of a call whose handler has run so often.
  static void CheckThatItIsTrue(const absl::Status& status, int runs) {
    if (DeliveryOf(status) == Delivery::kNotSent) {
      EXPECT_EQ(runs, 0) << "it was said not to have been sent";
    }
    for (const absl::string_view none : {"not sent", "not run"}) {
      if (status.message().find(none) == absl::string_view::npos) continue;
      EXPECT_EQ(runs, 0) << "it was said to be " << none;
    }
  }

  static void ExpectNothingUnderWay(const ChannelStats& stats) {
    EXPECT_EQ(stats.outstanding, 0u);
    EXPECT_EQ(stats.abandoned, 0u);
    EXPECT_EQ(stats.queued, 0u);
    EXPECT_EQ(stats.streams, 0u);
    EXPECT_EQ(stats.calls_started, stats.calls_ok + stats.calls_failed);
  }
  static void ExpectNothingUnderWay(const ServerStats& stats) {
    EXPECT_EQ(stats.running, 0u);
    EXPECT_EQ(stats.running_bytes, 0u);
  }

  Random random_;
  SimNetwork network_;

 private:
  std::string server_node_;
  int servers_ = 0;
};

}  // namespace weft::test
