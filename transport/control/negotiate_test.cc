#include "transport/control/negotiate.h"

#include <algorithm>
#include <string>

#include "gtest/gtest.h"
#include "transport/control/host_facts.h"

namespace weft {
namespace {

constexpr uint32_t k117 = 1u << 16 | 17;
constexpr uint32_t k206 = 2u << 16 | 6;

using Outcome = PathCandidate::Outcome;

PathOffer Offer(PathKind kind, uint32_t version = k117) {
  PathOffer offer;
  offer.kind = kind;
  offer.provider = PathKindName(kind);
  offer.fabric_version = version;
  return offer;
}

PathOffer Rdma(const std::string& device, LinkKind link, const std::string& host,
               uint32_t prefix_bits, const std::string& unavailable = "") {
  PathOffer offer = Offer(PathKind::kVerbs);
  offer.device = device;
  offer.link = link;
  offer.host = host;
  offer.prefix_bits = prefix_bits;
  offer.unavailable = unavailable;
  return offer;
}

// Two sides that agree about everything; tests take away what they are about.
struct Pair {
  Pair() {
    for (std::vector<PathOffer>* offers : {&client.paths, &server.paths}) {
      offers->push_back(Offer(PathKind::kShm));
      offers->push_back(Offer(PathKind::kTcp));
    }
    client.versions = kProtocolVersions;
    server.version = kProtocolVersions.max;
    client.host = {"5f3c0000-aaaa", 1000, 4711};
    server.host = {"5f3c0000-aaaa", 1000, 4712};
  }

  std::vector<PathCandidate> Negotiate() const {
    return DescribePairs(NegotiatePaths(client, server), client.paths, server.paths,
                         /*as_client=*/true);
  }
  // "shm tcp": what is left to try, in order.
  std::string Viable() const {
    std::string names;
    for (const PathCandidate& candidate : Negotiate()) {
      if (candidate.outcome != Outcome::kNotTried) continue;
      if (!names.empty()) names += " ";
      names += candidate.kind == PathKind::kVerbs ? candidate.address + ">" + candidate.peer_address
                                                  : std::string(PathKindName(candidate.kind));
    }
    return names;
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
       "different hosts (the boot ids"},
      {"no boot id", [](Pair& p) { p.client.host.boot_id = ""; }, "client cannot read"},
      {"no boot ids", [](Pair& p) { p.client.host.boot_id = p.server.host.boot_id = ""; },
       "cannot read"},
      {"other user", [](Pair& p) { p.client.host.user_id = 0; }, "uid 0 at the client, 1000"},
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
  pair.server.host = {"other", 0, 1};
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

// --- RDMA: pairs of addresses ------------------------------------------------------------------

// Both sides have two ports of RoCE v2 on two subnets.
struct RdmaPair : Pair {
  RdmaPair() {
    client.paths.insert(client.paths.begin() + 1,
                        {Rdma("mlx5_0:1", LinkKind::kRoceV2, "10.0.1.7", 24),
                         Rdma("mlx5_1:1", LinkKind::kRoceV2, "10.0.2.7", 24)});
    server.paths.insert(server.paths.begin() + 1,
                        {Rdma("mlx5_4:1", LinkKind::kRoceV2, "10.0.2.9", 24),
                         Rdma("mlx5_5:1", LinkKind::kRoceV2, "10.0.1.9", 24)});
  }
  std::vector<PathOffer>& clients() { return client.paths; }
  std::vector<PathOffer>& servers() { return server.paths; }
};

TEST(RdmaPairs, AreMadeBySubnetInTheClientsOrder) {
  const RdmaPair pair;
  EXPECT_EQ(pair.Viable(), "shm 10.0.1.7>10.0.1.9 10.0.2.7>10.0.2.9 tcp");
  const std::vector<PathCandidate> candidates = pair.Negotiate();
  EXPECT_EQ(CandidateName(candidates[1]),
            "verbs mlx5_0:1 (RoCE v2, 10.0.1.7) to mlx5_5:1 (10.0.1.9)");
}

TEST(RdmaPairs, BothSidesDescribeThemFromTheirOwn) {
  const RdmaPair pair;
  const auto as_server = DescribePairs(NegotiatePaths(pair.client, pair.server), pair.client.paths,
                                       pair.server.paths, /*as_client=*/false);
  EXPECT_EQ(CandidateName(as_server[1]),
            "verbs mlx5_5:1 (RoCE v2, 10.0.1.9) to mlx5_0:1 (10.0.1.7)");
}

TEST(RdmaPairs, AnAddressHasTwoPartnersAtMost) {
  RdmaPair pair;
  for (const char* host : {"10.0.1.10", "10.0.1.11"}) {
    pair.servers().push_back(Rdma("mlx5_6:1", LinkKind::kRoceV2, host, 24));
  }
  EXPECT_EQ(pair.Viable(), "shm 10.0.1.7>10.0.1.9 10.0.1.7>10.0.1.10 10.0.2.7>10.0.2.9 tcp");
}

TEST(RdmaPairs, EightAreTriedAtMostAndTheNextOneSaysSo) {
  Pair pair;
  for (int i = 0; i < 6; ++i) {
    const std::string number = std::to_string(i);
    pair.client.paths.push_back(Rdma("a" + number, LinkKind::kRoceV2, "10.0.0.1" + number, 16));
    pair.server.paths.push_back(Rdma("b" + number, LinkKind::kRoceV2, "10.0.0.2" + number, 16));
  }
  const std::vector<PathCandidate> candidates = pair.Negotiate();
  size_t viable = 0;
  for (const PathCandidate& c : candidates) {
    if (c.kind == PathKind::kVerbs && c.outcome == Outcome::kNotTried) ++viable;
  }
  EXPECT_EQ(viable, kMaxViableRdmaPairs);
  EXPECT_NE(candidates.back().reason.find("8 better pairs"), std::string::npos)
      << candidates.back().reason;
  EXPECT_LE(candidates.size(), kMaxCandidates);
}

TEST(RdmaPairs, NeverExceedWhatTheHelloHolds) {
  Pair pair;
  pair.client.paths.clear();
  pair.server.paths.clear();
  for (size_t i = 0; i < kMaxOfferedPaths; ++i) {
    const std::string number = std::to_string(i);
    const std::string down = i % 2 == 1 ? "port down" : "";
    pair.client.paths.push_back(
        Rdma("a" + number, LinkKind::kRoceV2, "10.0.0." + number, 16, down));
    pair.server.paths.push_back(
        Rdma("b" + number, LinkKind::kRoceV2, "10.0.1." + number, 16, down));
  }
  EXPECT_LE(NegotiatePaths(pair.client, pair.server).size(), kMaxCandidates);
}

TEST(RdmaPairs, AreRuledOutWithAReasonThatHelps) {
  const struct {
    std::string name;
    void (*change)(RdmaPair&);
    std::string reason;
  } kCases[] = {
      {"other subnet", [](RdmaPair& p) { p.servers()[2].host = "10.0.3.9"; },
       "no common subnet (10.0.1.7/24 at the client, 10.0.2.9/24 at the server); if a router joins "
       "them: LinkOptions::allow_routed or WEFT_ROUTED=1"},
      {"other network",
       [](RdmaPair& p) {
         for (PathOffer& offer : p.servers()) offer.link = LinkKind::kIwarp;
       },
       "different networks (RoCE v2 at the client, iWARP at the server)"},
      {"InfiniBand has no routers",
       [](RdmaPair& p) { p.clients()[1].link = p.servers()[1].link = LinkKind::kInfiniBand; },
       "no common subnet (10.0.1.7/24 at the client, 10.0.2.9/24 at the server)"},
      {"other family",
       [](RdmaPair& p) {
         p.servers()[1].host = "fd77::9";
         p.servers()[2].host = "fd78::9";
       },
       "different address families (10.0.1.7 at the client, fd77::9 at the server)"},
      {"the right port is down", [](RdmaPair& p) { p.servers()[2].unavailable = "port down"; },
       "server: port down"},
      {"the client's port is down", [](RdmaPair& p) { p.clients()[1].unavailable = "port down"; },
       "client: port down"},
      {"the server has no RDMA",
       [](RdmaPair& p) {
         p.servers()[1] = Rdma("", LinkKind::kUnknown, "", 0, "no RDMA device");
         p.servers().erase(p.servers().begin() + 2);
       },
       "server: no RDMA device"},
      {"the server knows no RDMA",
       [](RdmaPair& p) { p.servers().erase(p.servers().begin() + 1, p.servers().begin() + 3); },
       "the server does not know this path"},
  };
  for (const auto& c : kCases) {
    RdmaPair pair;
    c.change(pair);
    const std::vector<PathCandidate> candidates = pair.Negotiate();
    const auto row = std::find_if(candidates.begin(), candidates.end(),
                                  [](const auto& one) { return one.device == "mlx5_0:1"; });
    ASSERT_NE(row, candidates.end()) << c.name;
    EXPECT_EQ(row->outcome, Outcome::kRejected) << c.name;
    EXPECT_EQ(row->reason.substr(0, c.reason.size()), c.reason) << c.name << ": " << row->reason;
  }
}

TEST(RdmaPairs, WhatTheServerLacksIsToldOnce) {
  RdmaPair pair;
  pair.servers().push_back(Rdma("mlx5_9:1", LinkKind::kRoceV2, "", 0, "port down"));
  const std::vector<PathCandidate> candidates = pair.Negotiate();
  EXPECT_EQ(candidates.back().peer_device, "mlx5_9:1");
  EXPECT_EQ(candidates.back().reason, "server: port down");
  EXPECT_EQ(CandidateName(candidates.back()), "verbs to mlx5_9:1 (RoCE v2)");
}

TEST(RdmaPairs, WithoutRdmaOnBothSidesOneRowSaysSo) {
  Pair pair;
  pair.client.paths.push_back(Rdma("", LinkKind::kUnknown, "", 0, "no RDMA device"));
  pair.server.paths.push_back(Rdma("", LinkKind::kUnknown, "", 0, "no RDMA device"));
  EXPECT_EQ(pair.Negotiate().size(), 3u);
  EXPECT_EQ(pair.Reason(PathKind::kVerbs), "client: no RDMA device");
}

TEST(RdmaPairs, GoThroughRoutersIfEitherSideAllowsIt) {
  RdmaPair pair;
  pair.servers()[2].host = "10.9.0.9";
  pair.client.allow_routed = true;
  EXPECT_EQ(pair.Viable(),
            "shm 10.0.2.7>10.0.2.9 10.0.1.7>10.0.2.9 10.0.1.7>10.9.0.9 10.0.2.7>10.9.0.9 tcp")
      << "those with a common subnet come first";
  pair.client.allow_routed = false;
  EXPECT_EQ(pair.Viable(), "shm 10.0.2.7>10.0.2.9 tcp");
  size_t viable = 0;
  for (const PathPair& row : NegotiatePaths(pair.client, pair.server,
                                            /*server_allows_routed=*/true)) {
    if (row.rejected.empty()) ++viable;
  }
  EXPECT_EQ(viable, 6u);
}

TEST(RdmaPairs, OfRoceV1AndInfiniBandNeverGoThroughRouters) {
  for (const LinkKind link : {LinkKind::kRoceV1, LinkKind::kInfiniBand}) {
    Pair pair;
    pair.client.allow_routed = true;
    pair.client.paths.push_back(Rdma("a:1", link, "10.0.1.7", 24));
    pair.server.paths.push_back(Rdma("b:1", link, "10.0.2.9", 24));
    EXPECT_EQ(pair.Viable(), "shm tcp") << LinkKindName(link);
    EXPECT_EQ(pair.Reason(PathKind::kVerbs),
              "no common subnet (10.0.1.7/24 at the client, 10.0.2.9/24 at the server)");
  }
}

TEST(RdmaPairs, OfIpv6AreMadeBySubnetToo) {
  Pair pair;
  pair.client.paths.push_back(Rdma("a:1", LinkKind::kIwarp, "fd77::1", 64));
  pair.server.paths.push_back(Rdma("b:1", LinkKind::kIwarp, "fd77::2", 64));
  EXPECT_EQ(pair.Viable(), "shm tcp fd77::1>fd77::2");
}

TEST(CheckServerHello, NoLinkBetweenDifferentNetworksIsStarted) {
  RdmaPair pair;
  pair.server.candidates = NegotiatePaths(pair.client, pair.server);
  EXPECT_TRUE(CheckServerHello(pair.client, pair.server).ok());
  pair.servers()[2].link = LinkKind::kIwarp;
  EXPECT_EQ(CheckServerHello(pair.client, pair.server).code(), absl::StatusCode::kDataLoss);
}

TEST(ChosenReason, SaysWhichNetworkRdmaGoesOver) {
  const RdmaPair pair;
  EXPECT_EQ(
      ChosenReason({}, {}, pair.client.paths[1], pair.server.paths[2]),
      "RoCE v2 in a common subnet (10.0.1.7/24 here, 10.0.1.9/24 at the peer), libfabric 1.17 "
      "on both sides");
  EXPECT_EQ(ChosenReason({}, {}, pair.client.paths[1], pair.server.paths[1]),
            "RoCE v2 through a router (10.0.1.7/24 here, 10.0.2.9/24 at the peer), libfabric 1.17 "
            "on both sides");
}

TEST(ChosenReason, SaysThatTcpNeedsNoPortOfItsOwn) {
  PathOffer tcp;
  tcp.kind = PathKind::kTcp;
  EXPECT_EQ(ChosenReason({}, {}, tcp, tcp), "sockets by the server's own port");
}

TEST(CheckServerHello, AcceptsAnHonestAnswer) {
  Pair pair;
  pair.server.candidates = NegotiatePaths(pair.client, pair.server);
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
         p.server.candidates.push_back({2, 0, ""});
       }},
      {"path the server does not name", [](Pair& p) { p.server.candidates[0].server_offer = 9; }},
      {"reason about nothing",
       [](Pair& p) {
         p.server.candidates.push_back({-1, -1, "why"});
       }},
      {"half a pair", [](Pair& p) { p.server.candidates[1].client_offer = -1; }},
      {"two kinds", [](Pair& p) { p.server.candidates[1].client_offer = 0; }},
  };
  for (const auto& c : kCases) {
    Pair pair;
    pair.server.candidates = NegotiatePaths(pair.client, pair.server);
    c.change(pair);
    EXPECT_EQ(CheckServerHello(pair.client, pair.server).code(), absl::StatusCode::kDataLoss)
        << c.name;
  }
}

TEST(Agree, GivesEachSideWhatTheOtherHasTold) {
  Pair pair;
  pair.client.connection_index = 1;
  pair.client.connection_token = 11;
  pair.client.first_sequence = 111;
  pair.client.limits.window_slots = 32;
  pair.client.batch_proof = {1, 1};
  pair.server.connection_index = 2;
  pair.server.connection_token = 22;
  pair.server.first_sequence = 222;
  pair.server.limits.window_slots = 16;
  pair.server.batch_proof = {2, 2};
  pair.server.features = OwnFeatures();
  const LinkAgreement client = Agree(pair.client, pair.server, /*as_client=*/true, 4096);
  const LinkAgreement server = Agree(pair.client, pair.server, /*as_client=*/false, 4096);
  EXPECT_EQ(client.peer_index, 2u);
  EXPECT_EQ(server.peer_index, 1u);
  EXPECT_EQ(client.peer_token, 22u);
  EXPECT_EQ(server.peer_token, 11u);
  EXPECT_EQ(client.send_window_slots, 16u);
  EXPECT_EQ(server.send_window_slots, 32u);
  EXPECT_EQ(client.send_sequence, 222u);
  EXPECT_EQ(server.send_sequence, 111u);
  EXPECT_EQ(client.send_proof, pair.server.batch_proof);
  EXPECT_EQ(server.send_proof, pair.client.batch_proof);
  // What one side sends is what the other receives.
  EXPECT_EQ(client.receive_window_slots, server.send_window_slots);
  EXPECT_EQ(server.receive_window_slots, client.send_window_slots);
  EXPECT_EQ(client.receive_sequence, server.send_sequence);
  EXPECT_EQ(server.receive_sequence, client.send_sequence);
  EXPECT_EQ(client.receive_proof, server.send_proof);
  EXPECT_EQ(server.receive_proof, client.send_proof);
  for (const LinkAgreement& side : {client, server}) {
    EXPECT_EQ(side.batch_bytes, 4096u);
    EXPECT_TRUE(side.peer_answers && side.peer_leases && side.has_proofs);
    EXPECT_FALSE(side.only_sealed);
  }
}

TEST(Agree, OlderReleasesNumberBatchesFromZeroAndKnowNoProofs) {
  Pair pair;
  pair.client.first_sequence = 111;
  pair.server.first_sequence = 222;  // and features of neither side
  for (const bool as_client : {true, false}) {
    const LinkAgreement side = Agree(pair.client, pair.server, as_client, kMinBatchBytes);
    EXPECT_EQ(side.send_sequence, 0u);
    EXPECT_EQ(side.receive_sequence, 0u);
    EXPECT_FALSE(side.peer_answers || side.peer_leases || side.has_proofs);
  }
}

TEST(Agree, EitherSidesWordIsEnoughForEncryption) {
  for (const bool by_client : {true, false}) {
    Pair pair;
    (by_client ? pair.client.limits : pair.server.limits).require_encryption = true;
    for (const bool as_client : {true, false}) {
      EXPECT_TRUE(Agree(pair.client, pair.server, as_client, kMinBatchBytes).only_sealed);
    }
  }
}

TEST(ChosenReason, SaysWhoTheNeighbourIs) {
  const Pair pair;
  const std::string reason =
      ChosenReason(pair.client.host, pair.server.host, pair.client.paths[0], pair.server.paths[0]);
  EXPECT_EQ(reason, "same host (kernel 5f3c..., pid 4712, uid 1000)");
}

TEST(ChosenReason, NamesBothVersionsOfLibfabric) {
  EXPECT_EQ(ChosenReason({}, {}, Offer(PathKind::kOfiTcp, k117), Offer(PathKind::kOfiTcp, k206)),
            "libfabric 1.17 here, 2.6 at the peer");
}

TEST(HostFacts, AreReadHere) {
  const HostFacts facts = ReadHostFacts();
  EXPECT_EQ(facts.boot_id.size(), 36u);
  EXPECT_EQ(facts.process_id, getpid());
}

}  // namespace
}  // namespace weft
