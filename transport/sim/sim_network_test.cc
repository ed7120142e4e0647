// The simulated network: time, faults, and that a run can be repeated.

#include "transport/sim/sim_network.h"

#include <algorithm>
#include <string>
#include <vector>

#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_fixture.h"
#include "transport/sim/sim_transport.h"
#include "transport/testing/post.h"
#include "transport/transfer_table.h"

namespace weft {
namespace {

// Exact times: no jitter, and bytes cost nothing unless a test says so.
SimOptions Exact() {
  SimOptions options;
  options.wire = {/*delay_ns=*/10'000, /*jitter_ns=*/0, /*bytes_per_s=*/0};
  options.keep_trace = true;
  return options;
}

class SimNetworkTest : public SimTest {
 protected:
  SimNetworkTest() : SimTest(Exact()) {}
};

TEST_F(SimNetworkTest, AMessageTakesTheDelayOfItsWire) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  const uint64_t start_ns = now_ns();
  client->Send("x");
  ASSERT_TRUE(Run([&, server = server] { return server->received_count == 1; }));
  EXPECT_EQ(now_ns() - start_ns, 10'000u);
}

// A node has one engine.
TEST_F(SimNetworkTest, EveryEngineThatIsAskedForIsTheOne) {
  Listen("db");
  ConnectOptions options;
  options.link.server_engine = 5;
  const auto [client, server] = Pair("app", "db", options);
  for (Endpoint* const end : {client, server}) {
    EXPECT_EQ(end->connection().path().server_engine, 0u);
    EXPECT_EQ(end->connection().path().server_engines, 1u);
  }
}

TEST_F(SimNetworkTest, EachSideSeesWhoTheOtherHasProvedToBe) {
  Listen("db");
  {
    const auto [client, server] = Pair("app", "db");
    for (Endpoint* const end : {client, server}) {
      EXPECT_EQ(end->connection().path().identity.authentication, Authentication::kNone);
    }
  }
  PeerIdentity identity;
  identity.authentication = Authentication::kPreSharedKey;
  identity.psk_name = "fleet";
  network_->SetIdentity("app", identity);
  identity.psk_name = "store";
  network_->SetIdentity("db", identity);
  const auto [client, server] = Pair("app", "db");
  EXPECT_EQ(client->connection().path().identity.psk_name, "store");
  EXPECT_EQ(server->connection().path().identity.psk_name, "fleet");
}

// A hello that came when its node had been dead for longer than the others need to notice made a
// connection that never ended, and a peer session that waited for it for ever.
TEST_F(SimNetworkTest, AClientThatDiedBeforeItsHelloCameIsNoConnection) {
  Listen("db");
  network_->Node("app");
  network_->SetWire("app", "db", {/*delay_ns=*/100 * kNsPerMs, /*jitter_ns=*/0, 0});
  Connect("app", "db");
  network_->RunFor(kNsPerMs);
  network_->Kill("app");
  network_->RunFor(kNsPerSec);
  EXPECT_TRUE(acceptors_["db"].endpoints.empty());
}

TEST_F(SimNetworkTest, BytesTakeTheTimeOfTheirBandwidth) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->SetWire("app", "db", {0, 0, /*bytes_per_s=*/1'000'000});
  network_->SetWire("db", "app", {0, 0, /*bytes_per_s=*/1'000'000});
  const uint64_t start_ns = now_ns();
  client->Send(Pattern(1, 1'000'000));
  ASSERT_TRUE(Run([&, server = server] { return server->received_count == 1; }));
  EXPECT_GE(now_ns() - start_ns, kNsPerSec);
  EXPECT_LE(now_ns() - start_ns, kNsPerSec + kNsPerSec / 100);
}

TEST_F(SimNetworkTest, ABlockingCallRunsTheOtherMachinesInOneThread) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  server->on_message = [server = server](ByteSpan) { server->Send("pong"); };
  EngineCore& app = CoreOf(network_->Node("app"));
  Waiter waiter;
  client->on_message = [&](ByteSpan) { app.Finish(waiter); };
  client->Send("ping");
  const uint64_t start_ns = now_ns();
  EXPECT_TRUE(app.Wait(waiter));
  EXPECT_EQ(now_ns() - start_ns, 20'000u);
}

TEST_F(SimNetworkTest, ABlockingCallEndsAtItsDeadline) {
  EngineCore& app = CoreOf(network_->Node("app"));
  Waiter never;
  const uint64_t deadline_ns = now_ns() + 12'345'678;
  EXPECT_FALSE(app.Wait(never, deadline_ns));
  EXPECT_GE(now_ns(), deadline_ns);
}

TEST_F(SimNetworkTest, ABlockingCallThatNothingCanEndAborts) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EngineCore& app = CoreOf(network_->Node("app"));
  Waiter never;
  EXPECT_DEATH(app.Wait(never), "check failed");
}

class CountingTimer final : public Timer {
 public:
  explicit CountingTimer(EngineCore* engine) : engine_(engine) {}
  void OnTimer() override {
    ++fired;
    at_ns = engine_->clock().NowNs();
  }
  int fired = 0;
  uint64_t at_ns = 0;

 private:
  EngineCore* const engine_;
};

TEST_F(SimNetworkTest, TimersFireInVirtualTime) {
  EngineCore& app = CoreOf(network_->Node("app"));
  CountingTimer timer(&app);
  const uint64_t deadline_ns = now_ns() + kNsPerSec;
  app.timers().Schedule(&timer, deadline_ns);
  ASSERT_TRUE(Run([&] { return timer.fired == 1; }));
  EXPECT_GE(timer.at_ns, deadline_ns);
  EXPECT_LT(timer.at_ns, deadline_ns + TimerWheel::kTickNs);
}

TEST_F(SimNetworkTest, AFrozenNodeRunsNothingUntilItThaws) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  EngineCore& db = CoreOf(network_->Node("db"));
  CountingTimer timer(&db);
  db.timers().Schedule(&timer, now_ns() + kNsPerSec);
  network_->Freeze("db");
  client->Send("x");
  network_->RunFor(5 * kNsPerSec);
  EXPECT_EQ(server->received_count, 0u);
  EXPECT_EQ(timer.fired, 0);
  EXPECT_FALSE(client->closed());
  network_->Thaw("db");
  ASSERT_TRUE(Run([&, server = server] { return server->received_count == 1; }));
  EXPECT_EQ(timer.fired, 1);
}

TEST_F(SimNetworkTest, RunUntilGivesUpAtItsLimit) {
  network_->Node("app");
  const uint64_t start_ns = now_ns();
  EXPECT_FALSE(network_->RunUntil([] { return false; }, 777));
  EXPECT_EQ(now_ns() - start_ns, 777u);
}

// A condition that ended a connection was asked once more only if an event or a timer came as well;
// where none did, the connection was there for ever.
TEST_F(SimNetworkTest, WhatAConditionBeginsIsRunThoughNothingElseIsToCome) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->RunFor(60 * kNsPerSec);  // no timer is left
  EXPECT_TRUE(Run([&, client = client, server = server] {
    if (!client->closed()) client->connection().Close("the condition");
    return client->closed() && server->closed();
  }));
}

// --- faults -------------------------------------------------------------------------------------

TEST_F(SimNetworkTest, AKilledNodeIsUnavailableAndOthersGoOn) {
  Listen("db");
  Listen("other");
  const auto [client, server] = Pair("app", "db");
  const auto [other_client, other_server] = Pair("app", "other");
  client->Send(Pattern(1, 1 << 20));
  const uint64_t start_ns = now_ns();
  network_->Kill("db");
  ASSERT_TRUE(Run([client = client] { return client->closed(); }));
  EXPECT_TRUE(absl::IsUnavailable(client->why())) << client->why();
  EXPECT_LE(now_ns() - start_ns, 2 * kNsPerMs);
  EXPECT_FALSE(server->closed()) << "the dead do not notice";
  other_client->Send("still here");
  ASSERT_TRUE(Run([server = other_server] { return server->received_count == 1; }));
  // Whom nobody answers is told as well.
  Endpoint& late = Connect("app", "db");
  ASSERT_TRUE(Run([&] { return late.closed(); }));
  EXPECT_TRUE(absl::IsUnavailable(late.why())) << late.why();
}

TEST_F(SimNetworkTest, AKilledNodeListensNoMoreAndAnotherTakesItsName) {
  Listen("db");
  network_->Kill("db");
  const auto listening =
      network_->Node("db").transport().Listen("sim:again", {}, &acceptors_["db"]);
  EXPECT_TRUE(absl::IsFailedPrecondition(listening.status())) << listening.status();

  auto restarted = network_->Node("db 2").transport().Listen("sim:db", {}, &acceptors_["db 2"]);
  ASSERT_TRUE(restarted.ok()) << restarted.status();
  listeners_.erase("db");  // of the dead: the name is not its own any more
  Endpoint& client = Connect("app", "db");
  EXPECT_TRUE(Run([&] { return client.opened(); }));
}

TEST_F(SimNetworkTest, OperationsOnADeadNodeCompleteOnce) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  std::vector<std::byte> there(1 << 16);
  std::vector<std::byte> here(1 << 16);
  auto remote =
      server->connection().memory().Register({there.data(), there.size()}, Access::kRemoteRead);
  auto local =
      client->connection().memory().Register({here.data(), here.size()}, Access::kLocalOnly);
  ASSERT_TRUE(remote.ok() && local.ok());
  std::vector<TestOperation> reads(20);
  for (TestOperation& read : reads) {
    ASSERT_TRUE(Read(client->connection(), **local, 0, (*remote)->remote(), &read).ok());
  }
  network_->Kill("db");
  ASSERT_TRUE(Run([client = client] { return client->closed(); }));
  for (const TestOperation& read : reads) {
    EXPECT_EQ(read.completions, 1);
    EXPECT_TRUE(absl::IsUnavailable(read.result)) << read.result;
  }
}

TEST_F(SimNetworkTest, AShortPartitionDelaysAndLosesNothing) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->Partition("app", "db");
  for (uint64_t i = 0; i < 100; ++i) client->Send(Pattern(i, 100));
  network_->RunFor(kNsPerSec / 2);
  EXPECT_EQ(server->received_count, 0u);
  network_->Heal("app", "db");
  ASSERT_TRUE(Run([server = server] { return server->received.size() == 100; }));
  for (uint64_t i = 0; i < 100; ++i) EXPECT_EQ(server->received[i], Pattern(i, 100));
}

TEST_F(SimNetworkTest, ALongPartitionEndsBothSides) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->Partition("app", "db");
  network_->RunFor(kNsPerSec + kNsPerMs);
  ASSERT_TRUE(client->closed() && server->closed());
  EXPECT_TRUE(absl::IsUnavailable(client->why())) << client->why();
  EXPECT_TRUE(absl::IsUnavailable(server->why())) << server->why();
  // After healing there is nothing to revive, and room for a new connection.
  network_->Heal("app", "db");
  const auto [again, there] = Pair("app", "db");
  again->Send("hello");
  ASSERT_TRUE(Run([there = there] { return there->received_count == 1; }));
}

TEST_F(SimNetworkTest, ASideThatIsNotHeardIsGivenUpAndTold) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->Cut("app", "db");
  network_->RunFor(2 * kNsPerSec);
  ASSERT_TRUE(client->closed() && server->closed());
  EXPECT_NE(server->why().ToString().find("silent"), std::string::npos) << server->why();
}

TEST_F(SimNetworkTest, ASlowReceiverHoldsItsSendersBack) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  network_->SlowDown("db", kNsPerMs);
  const size_t eager = client->connection().eager_bytes();
  for (uint64_t i = 0; i < 500; ++i) client->Send(Pattern(i, eager));
  EXPECT_GT(client->unsent(), 400u);  // 64 credits
  const uint64_t start_ns = now_ns();
  ASSERT_TRUE(Run([server = server] { return server->received.size() == 500; }));
  EXPECT_GE(now_ns() - start_ns, 500 * kNsPerMs);
  for (uint64_t i = 0; i < 500; ++i) ASSERT_EQ(server->received[i], Pattern(i, eager));
}

// Eight messages of 1 MiB were once fetched at a time, each into a buffer that no cache held any
// more when its turn came.
TEST_F(SimNetworkTest, LargeMessagesAreFetchedFewAtATime) {
  Listen("db");
  const auto [client, server] = Pair("app", "db");
  constexpr size_t kBytes = 10'000;
  constexpr uint64_t kCount = 100;
  const uint64_t most = TransfersOf(PathKind::kSim).fetched_bytes;
  ASSERT_LT(most, 2 * kBytes) << "room for two: nothing is tested";
  SimFabric& fabric = network_->fabric();
  LargePool& pool = fabric.transport(fabric.IdOf("db"))->framing().receive_pool();
  for (uint64_t i = 0; i < kCount; ++i) client->Send(Pattern(i, kBytes));
  size_t most_in_use = 0;
  ASSERT_TRUE(Run([&, server = server] {
    most_in_use = std::max(most_in_use, pool.in_use_bytes());
    return server->received.size() == kCount;
  }));
  EXPECT_EQ(most_in_use, LargePool::kSmallestBytes);
  for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(server->received[i], Pattern(i, kBytes));
  // One that is larger than all of it comes as well.
  client->Send(Pattern(1, 5 * most));
  ASSERT_TRUE(Run([server = server] { return server->received.size() == kCount + 1; }));
}

// Both share the wire: the one is behind what the receiver has asked for of the other, and not
// behind all that was offered.
TEST_F(SimNetworkTest, ManyLargeMessagesOfOneConnectionDoNotHoldUpTheSingleOneOfAnother) {
  Listen("db");
  const auto [busy, busy_server] = Pair("app", "db");
  const auto [other, other_server] = Pair("app", "db");
  network_->SetWire("app", "db", {/*delay_ns=*/10'000, 0, /*bytes_per_s=*/100'000'000});
  constexpr size_t kBytes = 10'000;  // 0.1 ms
  constexpr uint64_t kCount = 64;
  for (uint64_t i = 0; i < kCount; ++i) busy->Send(Pattern(i, kBytes));
  ASSERT_TRUE(Run([server = busy_server] { return server->received.size() > 0; }));
  other->Send(Pattern(1, kBytes));
  ASSERT_TRUE(Run([server = other_server] { return server->received.size() == 1; }));
  EXPECT_LT(busy_server->received.size(), kCount / 4);
  ASSERT_TRUE(Run([server = busy_server] { return server->received.size() == kCount; }));
}

// --- repetition ---------------------------------------------------------------------------------

class SimTraceTest : public SimTest {
 protected:
  // A bit of everything. Returns the trace.
  std::vector<std::string> Scenario(uint64_t seed) {
    SimOptions options;
    options.keep_trace = true;
    Reset(seed, options);
    Listen("db");
    Listen("cache");
    const auto [client, server] = Pair("app", "db");
    const auto [client2, server2] = Pair("app", "cache");
    for (uint64_t i = 0; i < 200; ++i) client->Send(Pattern(i, i * 97 % 20'000));
    network_->Partition("app", "cache");
    client2->Send("late");
    network_->RunFor(kNsPerMs);
    network_->Heal("app", "cache");
    network_->Kill("db");
    network_->RunFor(10 * kNsPerMs);
    hash_ = network_->trace_hash();
    return network_->trace();
  }
  uint64_t hash_ = 0;
};

TEST_F(SimTraceTest, TheSameSeedGivesTheSameRun) {
  const std::vector<std::string> first = Scenario(42);
  const uint64_t first_hash = hash_;
  const std::vector<std::string> second = Scenario(42);
  ASSERT_GT(first.size(), 100u);
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i) ASSERT_EQ(first[i], second[i]) << "event " << i;
  EXPECT_EQ(hash_, first_hash);
}

TEST_F(SimTraceTest, AnotherSeedGivesAnotherRun) {
  Scenario(1);
  const uint64_t first_hash = hash_;
  Scenario(2);
  EXPECT_NE(hash_, first_hash);
}

}  // namespace
}  // namespace weft
