#include "transport/control/negotiate.h"

#include <string>

#include "gtest/gtest.h"
#include "transport/control/host_facts.h"
#include "transport/control/quirks.h"

namespace weft {
namespace {

constexpr uint32_t k117 = 1u << 16 | 17;
constexpr uint32_t k206 = 2u << 16 | 6;

using Outcome = PathCandidate::Outcome;

// Two sides that agree about everything; tests take away what they are about.
struct Pair {
  Pair() {
    for (std::vector<PathOffer>* offers : {&client.paths, &server.paths}) {
      offers->push_back({PathKind::kShm, "shm", k117, "shm", ""});
      offers->push_back({PathKind::kTcp, "tcp", k117, "lo", ""});
    }
    client.versions = kProtocolVersions;
    server.version = kProtocolVersions.max;
    client.host = {"5f3c0000-aaaa", 1000, 4711, 25, 1};
    server.host = {"5f3c0000-aaaa", 1000, 4712, 25, 1};
  }

  std::vector<PathCandidate> Negotiate() const { return NegotiatePaths(client, server); }
  // "shm tcp": what is left to try, in order.
  std::string Viable() const {
    std::string kinds;
    for (const PathCandidate& candidate : Negotiate()) {
      if (candidate.outcome != Outcome::kNotTried) continue;
      if (!kinds.empty()) kinds += " ";
      kinds += PathKindName(candidate.kind);
    }
    return kinds;
  }
  std::string Reason(PathKind kind) const {
    for (const PathCandidate& candidate : Negotiate()) {
      if (candidate.kind == kind) return candidate.reason;
    }
    return "(not a candidate)";
  }

  ClientHello client;
  ServerHello server;
};

TEST(NegotiateVersion, TakesTheHighestThatBothSpeak) {
  const struct {
    VersionRange client, server;
    uint32_t expected;  // 0: none
  } kCases[] = {
      {{1, 1}, {1, 1}, 1}, {{1, 3}, {2, 5}, 3}, {{2, 5}, {1, 3}, 3}, {{1, 9}, {4, 4}, 4},
      {{1, 1}, {2, 2}, 0}, {{3, 4}, {1, 2}, 0}, {{0, 0}, {1, 1}, 0},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<uint32_t> version = NegotiateVersion(c.client, c.server);
    if (c.expected == 0) {
      EXPECT_EQ(version.status().code(), absl::StatusCode::kFailedPrecondition);
    } else {
      ASSERT_TRUE(version.ok()) << version.status();
      EXPECT_EQ(*version, c.expected);
    }
  }
}

TEST(NegotiateVersion, NamesBothRanges) {
  const std::string text(NegotiateVersion({1, 2}, {5, 7}).status().message());
  EXPECT_NE(text.find("client speaks 1 to 2"), std::string::npos) << text;
  EXPECT_NE(text.find("server 5 to 7"), std::string::npos) << text;
}

TEST(NegotiateFeatures, KeepsWhatBothHaveOnce) {
  EXPECT_EQ(NegotiateFeatures({"b", "a", "c", "a"}, {"a", "x", "c"}),
            (std::vector<std::string>{"a", "c"}));
  EXPECT_TRUE(NegotiateFeatures({}, {"a"}).empty());
}

TEST(NegotiatePaths, OffersEverythingOnOneHost) {
  const Pair pair;
  EXPECT_EQ(pair.Viable(), "shm tcp");
  EXPECT_TRUE(HasViable(pair.Negotiate()));
}

TEST(NegotiatePaths, FollowsTheClientsOrder) {
  Pair pair;
  std::swap(pair.client.paths[0], pair.client.paths[1]);
  EXPECT_EQ(pair.Viable(), "tcp shm");
}

TEST(NegotiatePaths, RulesOutShmWithAReasonThatHelps) {
  const struct {
    std::string name;
    void (*change)(Pair&);
    std::string reason;
  } kCases[] = {
      {"other host", [](Pair& p) { p.server.host.boot_id = "9a1b"; },
       "different hosts (kernel 5f3c"},
      {"no boot id", [](Pair& p) { p.client.host.boot_id = ""; }, "client cannot read"},
      {"no boot ids", [](Pair& p) { p.client.host.boot_id = p.server.host.boot_id = ""; },
       "cannot read"},
      {"other user", [](Pair& p) { p.client.host.user_id = 0; }, "uid 0 at the client, 1000"},
      {"other mount", [](Pair& p) { p.client.host.shm_device = 26; }, "/dev/shm is not the same"},
      {"other folder", [](Pair& p) { p.client.host.shm_inode = 2; }, "/dev/shm is not the same"},
      {"other libfabric", [](Pair& p) { p.server.paths[0].fabric_version = k206; },
       "different libfabric versions (1.17 at the client, 2.6 at the server)"},
      {"denied by the client",
       [](Pair& p) { p.client.paths[0].unavailable = "denied by WEFT_PATHS=tcp"; },
       "client: denied by WEFT_PATHS=tcp"},
      {"not at the server",
       [](Pair& p) { p.server.paths[0].unavailable = "provider not built in"; },
       "server: provider not built in"},
      {"unknown to the server", [](Pair& p) { p.server.paths.erase(p.server.paths.begin()); },
       "server does not know"},
      {"unknown to the client", [](Pair& p) { p.client.paths.erase(p.client.paths.begin()); },
       "client does not know"},
  };
  for (const auto& c : kCases) {
    Pair pair;
    c.change(pair);
    EXPECT_EQ(pair.Viable(), "tcp") << c.name;
    EXPECT_NE(pair.Reason(PathKind::kShm).find(c.reason), std::string::npos)
        << c.name << ": " << pair.Reason(PathKind::kShm);
  }
}

TEST(NegotiatePaths, TcpDoesNotMindDifferentHostsUsersAndVersions) {
  Pair pair;
  pair.server.host = {"other", 0, 1, 99, 99};
  pair.server.paths[1].fabric_version = k206;
  EXPECT_EQ(pair.Viable(), "tcp");
}

TEST(NegotiatePaths, WithoutACommonPathEveryReasonIsTold) {
  Pair pair;
  pair.client.paths[1].unavailable = "denied by WEFT_PATHS=shm";
  pair.server.host.boot_id = "9a1b";
  EXPECT_FALSE(HasViable(pair.Negotiate()));
  const absl::Status status = NoCommonPath(pair.Negotiate());
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string text(status.message());
  EXPECT_NE(text.find("shm: different hosts"), std::string::npos) << text;
  EXPECT_NE(text.find("tcp: client: denied by WEFT_PATHS=shm"), std::string::npos) << text;
}

TEST(NegotiatePaths, NothingOfferedIsSaidAsWell) {
  EXPECT_NE(std::string(NoCommonPath({}).message()).find("none is offered"), std::string::npos);
}

TEST(CheckServerHello, AcceptsAnHonestAnswer) {
  Pair pair;
  pair.server.candidates = pair.Negotiate();
  EXPECT_TRUE(CheckServerHello(pair.client, pair.server).ok());
}

TEST(CheckServerHello, RefusesWhatWasNotOffered) {
  const struct {
    std::string name;
    void (*change)(Pair&);
  } kCases[] = {
      {"version", [](Pair& p) { p.server.version = 7; }},
      {"feature", [](Pair& p) { p.server.features = {"teleport"}; }},
      {"path the client denies", [](Pair& p) { p.client.paths[0].unavailable = "denied"; }},
      {"path the server lacks", [](Pair& p) { p.server.paths[0].unavailable = "none"; }},
      {"path nobody named",
       [](Pair& p) {
         p.server.candidates.push_back({PathKind::kSim, Outcome::kNotTried, ""});
       }},
  };
  for (const auto& c : kCases) {
    Pair pair;
    pair.server.candidates = pair.Negotiate();
    c.change(pair);
    EXPECT_EQ(CheckServerHello(pair.client, pair.server).code(), absl::StatusCode::kDataLoss)
        << c.name;
  }
}

TEST(ChosenReason, SaysWhoTheNeighbourIs) {
  const Pair pair;
  const std::string reason = ChosenReason(PathKind::kShm, pair.client.host, pair.server.host,
                                          pair.client.paths[0], pair.server.paths[0]);
  EXPECT_NE(reason.find("same host (kernel 5f3c..., pid 4712, uid 1000)"), std::string::npos)
      << reason;
  EXPECT_NE(reason.find("libfabric 1.17 on both sides"), std::string::npos) << reason;
  EXPECT_NE(reason.find(std::string(QuirkNote(PathKind::kShm, k117))), std::string::npos);
}

TEST(ChosenReason, NamesBothVersionsOverTcp) {
  EXPECT_EQ(ChosenReason(PathKind::kTcp, {}, {}, {PathKind::kTcp, "tcp", k117, "", ""},
                         {PathKind::kTcp, "tcp", k206, "", ""}),
            "libfabric 1.17 here, 2.6 at the peer");
}

TEST(Quirks, AreToldOnlyWhereTheyHold) {
  EXPECT_FALSE(QuirkNote(PathKind::kShm, k117).empty());
  EXPECT_TRUE(QuirkNote(PathKind::kShm, k206).empty());
  EXPECT_TRUE(QuirkNote(PathKind::kTcp, k117).empty());
}

TEST(HostFacts, AreReadHere) {
  const HostFacts facts = ReadHostFacts();
  EXPECT_EQ(facts.boot_id.size(), 36u);
  EXPECT_EQ(facts.process_id, getpid());
  EXPECT_NE(facts.shm_inode, 0u);
}

}  // namespace
}  // namespace weft
