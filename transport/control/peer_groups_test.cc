// Heartbeats that many connections between two engines share, in a time that only the test moves.
//
// An idle server sent a heartbeat by each of a thousand connections each 0.75 s, though all led to
// one process: 5 % of a processor.

#include "transport/control/peer_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/timer_wheel.h"

namespace weft {
namespace {

constexpr uint64_t kTimeoutNs = 3 * kNsPerSec;
constexpr uint64_t kStepNs = 10 * kNsPerMs;  // between two turns of a healthy engine
constexpr size_t kMany = 1000;

ControlLimits Limits(const Nonce128& key, uint64_t timeout_ns = kTimeoutNs) {
  ControlLimits limits;
  limits.peer_timeout_ns = timeout_ns;
  limits.heartbeats = true;
  limits.engine_key = key;
  return limits;
}

// One side of a connection. What it sends its peer hears at once, or never.
class End final : public PeerGroups::Member {
 public:
  explicit End(PeerGroups* groups) : groups_(groups) {}
  ~End() { groups_->Leave(this); }

  void SendHeartbeat() override {
    ++sent;
    if (peer != nullptr && !stalled) peer->groups_->OnHeard(peer);
  }
  bool HasUnread() const override { return unread; }
  void OnSilent() override { ++deaths; }

  End* peer = nullptr;
  bool stalled = false;  // what it sends does not come through
  bool unread = false;
  int sent = 0;
  int deaths = 0;

 private:
  PeerGroups* const groups_;
};

class PeerGroupsTest : public testing::Test {
 protected:
  // Two engines, which are driven in turns.
  struct Engine {
    explicit Engine(const Clock& clock) : wheel(clock.NowNs()), groups(&clock, &wheel) {}
    TimerWheel wheel;
    PeerGroups groups;
    bool stopped = false;
  };
  struct Pair {
    std::unique_ptr<End> client, server;
  };

  Pair Connect(const ControlLimits& client, const ControlLimits& server) {
    Pair pair{std::make_unique<End>(&client_.groups), std::make_unique<End>(&server_.groups)};
    pair.client->peer = pair.server.get();
    pair.server->peer = pair.client.get();
    client_.groups.Join(pair.client.get(), client, server);
    server_.groups.Join(pair.server.get(), server, client);
    return pair;
  }
  Pair Connect() {
    return Connect(Limits(client_.groups.ClientKey("a.example:7000", nullptr)),
                   Limits(server_.groups.ServerKey({})));
  }
  std::vector<Pair> ConnectMany() {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < kMany; ++i) pairs.push_back(Connect());
    return pairs;
  }
  // Both sides are gone, the server's first.
  static void Close(Pair& pair) {
    pair.client->peer = nullptr;
    pair.server.reset();
    pair.client.reset();
  }

  void Drive(uint64_t ns) {
    for (uint64_t at = 0; at < ns; at += kStepNs) {
      clock_.Advance(kStepNs);
      for (Engine* engine : {&client_, &server_}) {
        if (!engine->stopped) engine->wheel.Advance(clock_.NowNs());
      }
    }
  }

  static int Deaths(const std::vector<Pair>& pairs) {
    int deaths = 0;
    for (const Pair& pair : pairs) {
      if (pair.client != nullptr) deaths += pair.client->deaths;
      if (pair.server != nullptr) deaths += pair.server->deaths;
    }
    return deaths;
  }

  FakeClock clock_;
  Engine client_{clock_}, server_{clock_};
};

TEST_F(PeerGroupsTest, AThousandConnectionsTakeTheHeartbeatsOfTwo) {
  const std::vector<Pair> pairs = ConnectMany();
  EXPECT_EQ(client_.groups.size(), 1u);
  EXPECT_EQ(client_.wheel.size(), 1u);
  Drive(10 * kTimeoutNs);
  int sent = 0, most = 0;
  for (const Pair& pair : pairs) {
    sent += pair.client->sent;
    most = std::max(most, pair.client->sent);
  }
  EXPECT_GE(sent, 2 * 38);
  EXPECT_LE(sent, 2 * 40);
  EXPECT_EQ(most, 1) << "others carry the next ones";
  EXPECT_EQ(Deaths(pairs), 0);
}

TEST_F(PeerGroupsTest, ASilentPeerEndsAllItsConnectionsOnce) {
  const std::vector<Pair> pairs = ConnectMany();
  server_.stopped = true;
  Drive(kTimeoutNs - kStepNs);
  EXPECT_EQ(Deaths(pairs), 0);
  Drive(2 * kStepNs);
  EXPECT_EQ(Deaths(pairs), static_cast<int>(kMany));
  Drive(5 * kTimeoutNs);
  EXPECT_EQ(Deaths(pairs), static_cast<int>(kMany));
}

TEST_F(PeerGroupsTest, WhatWaitsUnreadInOneConnectionIsASignOfLifeForAll) {
  const std::vector<Pair> pairs = ConnectMany();
  server_.stopped = true;
  pairs[700].client->unread = true;
  Drive(2 * kTimeoutNs - kStepNs);
  EXPECT_EQ(Deaths(pairs), 0);
  pairs[700].client->unread = false;
  Drive(kTimeoutNs);
  EXPECT_EQ(Deaths(pairs), static_cast<int>(kMany));
}

// A connection whose bytes a router drops is for the kernel to end: it ends no other.
TEST_F(PeerGroupsTest, AConnectionThatCarriesNothingEndsNoOther) {
  for (const size_t count : {2, 3, 10}) {
    std::vector<Pair> pairs;
    for (size_t i = 0; i < count; ++i) pairs.push_back(Connect());
    pairs[1].server->stalled = pairs[1].client->stalled = true;
    Drive(20 * kTimeoutNs);
    EXPECT_EQ(Deaths(pairs), 0) << count;
    for (Pair& pair : pairs) Close(pair);
  }
}

// Half of the connections take another way through the network, which breaks.
TEST_F(PeerGroupsTest, AWayThatSomeConnectionsTakeEndsNoOther) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 8; ++i) pairs.push_back(Connect());
  for (int i = 0; i < 8; i += 4) {
    for (int k = i; k < i + 2; ++k) pairs[k].server->stalled = pairs[k].client->stalled = true;
  }
  Drive(20 * kTimeoutNs);
  EXPECT_EQ(Deaths(pairs), 0);
}

TEST_F(PeerGroupsTest, TheLastConnectionOfAGroupHasHeartbeatsOfItsOwn) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 2; ++i) pairs.push_back(Connect());
  Drive(10 * kTimeoutNs);
  EXPECT_GE(pairs[0].client->sent, 38);
  Close(pairs[1]);
  pairs[0].client->sent = 0;
  Drive(10 * kTimeoutNs);
  EXPECT_GE(pairs[0].client->sent, 19);
  EXPECT_LE(pairs[0].client->sent, 22);
  EXPECT_EQ(Deaths(pairs), 0);
}

TEST_F(PeerGroupsTest, WhatAConnectionThatEndsHasNotCarriedGoesByAnotherAtOnce) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 4; ++i) pairs.push_back(Connect());
  // Both carriers of the first heartbeat end before it comes.
  for (int i = 0; i < 2; ++i) pairs[i].client->stalled = true;
  Drive(kTimeoutNs / 2 + kStepNs);
  ASSERT_EQ(pairs[0].client->sent + pairs[1].client->sent, 2);
  ASSERT_EQ(pairs[2].client->sent + pairs[3].client->sent, 0);
  for (int i = 0; i < 2; ++i) Close(pairs[i]);
  Drive(kStepNs);
  EXPECT_EQ(pairs[2].client->sent + pairs[3].client->sent, 2);
  Drive(10 * kTimeoutNs);
  EXPECT_EQ(Deaths(pairs), 0);
}

TEST_F(PeerGroupsTest, ConnectionsThatComeAndGoLeaveNothing) {
  for (int round = 0; round < 3; ++round) {
    std::vector<Pair> pairs = ConnectMany();
    Drive(kTimeoutNs);
    for (Pair& pair : pairs) Close(pair);
    EXPECT_EQ(client_.groups.size() + server_.groups.size(), 0u);
    EXPECT_EQ(client_.wheel.size() + server_.wheel.size(), 0u);
  }
}

// A peer that was stopped for long goes on, and connects again before this side has ended what it
// has declared dead.
TEST_F(PeerGroupsTest, AConnectionThatOpensWhileOthersEndIsNotOneOfThem) {
  std::vector<Pair> pairs;
  pairs.push_back(Connect());
  client_.stopped = true;
  Drive(kTimeoutNs + kStepNs);
  ASSERT_EQ(pairs[0].server->deaths, 1);
  client_.stopped = false;
  pairs.push_back(Connect());
  Drive(5 * kTimeoutNs);
  EXPECT_EQ(pairs[1].server->deaths + pairs[1].client->deaths, 0);
  EXPECT_EQ(server_.groups.size(), 2u);
}

TEST_F(PeerGroupsTest, OtherKeysOrTermsAreOtherGroups) {
  const Nonce128 client = client_.groups.ClientKey("a.example:7000", nullptr);
  const Nonce128 server = server_.groups.ServerKey({});
  ControlLimits undriven = Limits(client);
  undriven.heartbeats = false;
  std::vector<Pair> pairs;
  pairs.push_back(Connect(Limits(client), Limits(server)));
  pairs.push_back(
      Connect(Limits(client_.groups.ClientKey("b.example:7000", nullptr)), Limits(server)));
  pairs.push_back(Connect(Limits(client), Limits({1, 2})));
  pairs.push_back(Connect(Limits(client, 2 * kTimeoutNs), Limits(server)));
  pairs.push_back(Connect(Limits(client), Limits(server, 2 * kTimeoutNs)));
  pairs.push_back(Connect(undriven, Limits(server)));
  EXPECT_EQ(client_.groups.size(), pairs.size());
  EXPECT_EQ(server_.groups.size(), pairs.size());
  Drive(5 * kTimeoutNs);
  EXPECT_EQ(Deaths(pairs), 0);
}

// Of a release that shares none: each connection has heartbeats of its own, and a life of its own.
TEST_F(PeerGroupsTest, APeerWithoutAKeyIsWatchedByEachConnection) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 3; ++i) {
    pairs.push_back(
        Connect(Limits(client_.groups.ClientKey("a.example:7000", nullptr)), Limits(Nonce128())));
  }
  EXPECT_EQ(client_.groups.size(), 3u);
  pairs[1].server->stalled = true;
  Drive(5 * kTimeoutNs);
  EXPECT_EQ(pairs[0].client->deaths, 0);
  EXPECT_EQ(pairs[1].client->deaths, 1);
  EXPECT_EQ(pairs[2].client->deaths, 0);
  EXPECT_GE(pairs[0].client->sent, 9);
}

// Who knew the key that a client tells another server could join that group, and keep from the
// client what its server sends.
TEST_F(PeerGroupsTest, AClientTellsEachServerAnotherKey) {
  const PeerGroups& groups = client_.groups;
  EXPECT_EQ(groups.ClientKey("a:1", nullptr), groups.ClientKey("a:1", nullptr));
  EXPECT_NE(groups.ClientKey("a:1", nullptr), groups.ClientKey("a:2", nullptr));
  EXPECT_NE(groups.ClientKey("a:1", nullptr), server_.groups.ClientKey("a:1", nullptr));
  EXPECT_NE(groups.ServerKey({}), server_.groups.ServerKey({}));
  EXPECT_NE(groups.ClientKey("", nullptr), Nonce128());
}

TEST_F(PeerGroupsTest, AFloodOfFramesIsCountedForEachConnection) {
  std::vector<Pair> pairs;
  for (int i = 0; i < 2; ++i) pairs.push_back(Connect());
  for (uint32_t i = 0; i < PeerWatch::kMaxFrames; ++i) {
    ASSERT_TRUE(client_.groups.OnFrame(pairs[0].client.get()));
  }
  EXPECT_FALSE(client_.groups.OnFrame(pairs[0].client.get()));
  EXPECT_TRUE(client_.groups.OnFrame(pairs[1].client.get()));
}

PeerIdentity Certified(std::vector<std::string> dns_names) {
  PeerIdentity identity;
  identity.authentication = Authentication::kCertificate;
  identity.subject = "CN=x";
  identity.dns_names = std::move(dns_names);
  return identity;
}

// A client tells its key itself, and could tell another's, of whom it would be a sign of life then.
TEST_F(PeerGroupsTest, ClientsWithOtherNamesAreOfOtherGroupsWhateverTheyTell) {
  const Nonce128 told = client_.groups.ClientKey("a.example:7000", nullptr);
  Pair victim = Connect(Limits(told), Limits(server_.groups.ServerKey(Certified({"victim"}))));
  Pair other = Connect(Limits(told), Limits(server_.groups.ServerKey(Certified({"other"}))));
  EXPECT_EQ(server_.groups.size(), 2u);
  EXPECT_EQ(client_.groups.size(), 2u) << "both sides find the same groups";
  victim.client->stalled = true;  // its process has been stopped, and the other goes on
  Drive(2 * kTimeoutNs);
  EXPECT_EQ(victim.server->deaths, 1);
  EXPECT_EQ(other.server->deaths, 0);
}

TEST_F(PeerGroupsTest, AServersKeyTellsClientsApart) {
  const PeerGroups& groups = server_.groups;
  const Nonce128 key = groups.ServerKey(Certified({"a", "b"}));
  EXPECT_EQ(groups.ServerKey(Certified({"a", "b"})), key);
  PeerIdentity by_uri = Certified({"a"});
  by_uri.uris = {"b"};
  PeerIdentity by_secret;
  by_secret.authentication = Authentication::kPreSharedKey;
  by_secret.psk_name = "a";
  PeerIdentity by_kernel;
  by_kernel.authentication = Authentication::kKernelCredentials;
  by_kernel.user_id = 7;
  PeerIdentity other_user = by_kernel;
  other_user.user_id = 8;
  const PeerIdentity others[] = {Certified({"a"}),
                                 Certified({"a 1 b"}),
                                 Certified({"b", "a"}),
                                 by_uri,
                                 by_secret,
                                 by_kernel,
                                 other_user,
                                 {}};
  std::vector<Nonce128> keys = {key};
  for (const PeerIdentity& identity : others) {
    const Nonce128 other = groups.ServerKey(identity);
    EXPECT_EQ(std::count(keys.begin(), keys.end(), other), 0) << IdentityText(identity);
    keys.push_back(other);
  }
}

TEST_F(PeerGroupsTest, AClientsKeyTellsItsCredentialsApart) {
  const int some = 0, others = 0;
  const PeerGroups& groups = client_.groups;
  EXPECT_EQ(groups.ClientKey("a:1", &some), groups.ClientKey("a:1", &some));
  EXPECT_NE(groups.ClientKey("a:1", &some), groups.ClientKey("a:1", &others));
  EXPECT_NE(groups.ClientKey("a:1", &some), groups.ClientKey("a:1", nullptr));
}

}  // namespace
}  // namespace weft
