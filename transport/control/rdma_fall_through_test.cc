// Hosts with several RDMA ports: the pairs of addresses are tried one after the other, each by a
// domain of its own, and both sides can say what happened. The ports are made up; those that work
// are tcp underneath.

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transport/control/network_transport.h"
#include "transport/control/testing/faulty_domain.h"
#include "transport/control/testing/network_world.h"
#include "transport/control/testing/two_path_engine.h"
#include "transport/ofi/ofi.h"

namespace weft {
namespace {

// A made-up host.
struct Host {
  std::vector<PathOffer> offers;
  std::map<std::string, Fault> faults;  // by device; kNone where there is no entry
  // What was asked of it.
  std::vector<RdmaFilter> filters;
  std::vector<std::string> opened;
};

PathOffer Port(const std::string& device, const std::string& host,
               LinkKind link = LinkKind::kRoceV2) {
  PathOffer offer;
  offer.device = device;
  offer.link = link;
  offer.host = host;
  offer.prefix_bits = 24;
  return offer;
}

PathProvider RdmaOf(Host* host) {
  PathProvider provider;
  provider.kind = PathKind::kVerbs;
  provider.provider = "verbs";
  provider.offers = [host](const RdmaFilter& filter, uint64_t) {
    host->filters.push_back(filter);
    std::vector<PathOffer> offers = host->offers;  // as ChooseRdma() orders ports that are alike
    std::rotate(offers.begin(), offers.begin() + filter.first_port % offers.size(), offers.end());
    return offers;
  };
  provider.open = [host](const PathOffer& offer,
                         BatchSink* sink) -> absl::StatusOr<std::unique_ptr<LinkDomain>> {
    host->opened.push_back(offer.device);
    const auto found = host->faults.find(offer.device);
    const Fault fault = found == host->faults.end() ? Fault::kNone : found->second;
    if (fault == Fault::kCannotOpen) {
      return absl::UnavailableError("memlock 8 MiB is too small: ulimit -l unlimited");
    }
    if (fault != Fault::kNone) {
      return std::unique_ptr<LinkDomain>(std::make_unique<FaultyDomain>(fault));
    }
    OfiOptions ofi;
    ofi.sink = sink;
    ofi.bind_address = "127.0.0.1";
    return OpenOfiTcpDomain(ofi);
  };
  return provider;
}

std::unique_ptr<Engine> EngineOn(Host* host) {
  return TwoPathEngine([host] { return RdmaOf(host); });
}

// Two hosts with two ports each, on two subnets.
class RdmaFallThroughTest : public NetworkTest {
 protected:
  void SetUp() override {
    client_host_.offers = {Port("c0:1", "10.0.1.7"), Port("c1:1", "10.0.2.7")};
    server_host_.offers = {Port("s0:1", "10.0.1.9"), Port("s1:1", "10.0.2.9")};
    client_ = EngineOn(&client_host_);
    server_ = EngineOn(&server_host_);
    acceptor_.echo = true;
  }

  // Connects, and checks that the connection works.
  NetworkEnd* Connect(const ConnectOptions& options = Impatient()) {
    if (listener_ == nullptr) Listen("127.0.0.1:0");
    NetworkEnd* const end = Dial(options);
    EXPECT_TRUE(RunUntilDecided(*end));
    EXPECT_TRUE(end->opened()) << end->why();
    if (!end->opened()) return nullptr;
    EXPECT_TRUE(end->Send("through"));
    EXPECT_TRUE(Run([&] { return !end->received.empty(); }));
    return end;
  }
  static void ExpectChosen(const NetworkEnd& end, const std::string& name) {
    std::string chosen;
    for (const PathCandidate& candidate : end.candidates()) {
      if (candidate.outcome == PathCandidate::Outcome::kChosen) chosen += CandidateName(candidate);
    }
    EXPECT_EQ(chosen, name) << end.explained();
  }
  static std::string Reason(const NetworkEnd& end, const std::string& device) {
    for (const PathCandidate& candidate : end.candidates()) {
      if (candidate.device == device) return candidate.reason;
    }
    return "(not a candidate)";
  }

  Host client_host_;
  Host server_host_;
};

TEST_F(RdmaFallThroughTest, TheFirstPairWithACommonSubnetCarriesTheConnection) {
  NetworkEnd* const end = Connect();
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.0.1.9)");
  ExpectChosen(*acceptor_.ends[0], "verbs s0:1 (RoCE v2, 10.0.1.9) to c0:1 (10.0.1.7)");
  EXPECT_EQ(end->connection().path().link, LinkKind::kRoceV2);
  EXPECT_EQ(Reason(*end, "c1:1"),
            "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.0.1.9) comes before it and works");
}

TEST_F(RdmaFallThroughTest, ADomainIsOpenedForWhatIsUsedAndOnce) {
  ASSERT_NE(Connect(), nullptr);
  ASSERT_NE(Connect(), nullptr);
  EXPECT_EQ(client_host_.opened, (std::vector<std::string>{"c0:1"}));
  EXPECT_EQ(server_host_.opened, (std::vector<std::string>{"s0:1"}));
}

TEST_F(RdmaFallThroughTest, EachWayToFailLeadsToTheNextPair) {
  const struct {
    Fault client;
    Fault server;
    const char* reason;  // at the client
  } cases[] = {
      {Fault::kCannotOpen, Fault::kNone, "client: memlock 8 MiB is too small"},
      {Fault::kNone, Fault::kCannotOpen, "server: memlock 8 MiB is too small"},
      {Fault::kLost, Fault::kLinkHangs, "client: the device is gone"},
      {Fault::kRefusesLink, Fault::kLinkHangs, "client: no slots left"},
      {Fault::kLinkHangs, Fault::kRefusesLink, "server: no slots left"},
      {Fault::kLinkFails, Fault::kLinkHangs, "client: the cable is cut"},
      {Fault::kLinkHangs, Fault::kLinkFails, "server: the cable is cut"},
      {Fault::kLinkHangs, Fault::kLinkHangs, "it did not come up within 1000 ms"},
  };
  for (const auto& c : cases) {
    listener_.reset();
    client_host_.faults["c0:1"] = c.client;
    server_host_.faults["s0:1"] = c.server;
    client_ = EngineOn(&client_host_);
    server_ = EngineOn(&server_host_);
    const NetworkEnd* const end = Connect();
    ASSERT_NE(end, nullptr) << c.reason;
    ExpectChosen(*end, "verbs c1:1 (RoCE v2, 10.0.2.7) to s1:1 (10.0.2.9)");
    ExpectChosen(*acceptor_.ends.back(), "verbs s1:1 (RoCE v2, 10.0.2.9) to c1:1 (10.0.2.7)");
    EXPECT_EQ(Reason(*end, "c0:1").find(c.reason), 0u) << Reason(*end, "c0:1");
  }
}

TEST_F(RdmaFallThroughTest, WhenAllPairsFailTcpCarriesTheConnection) {
  client_host_.faults = {{"c0:1", Fault::kLinkFails}, {"c1:1", Fault::kCannotOpen}};
  server_host_.faults = {{"s0:1", Fault::kLinkHangs}};
  const NetworkEnd* const end = Connect();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->path(), "tcp");
  ExpectChosen(*end, "tcp");
}

TEST_F(RdmaFallThroughTest, AHostWithoutRdmaSaysSo) {
  PathOffer none;
  none.unavailable = "no RDMA device";
  server_host_.offers = {none};
  const NetworkEnd* const end = Connect();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_EQ(Reason(*end, "c0:1"), "server: no RDMA device");
}

TEST_F(RdmaFallThroughTest, APortThatComesUpIsNoticed) {
  std::vector<PathOffer> up = std::exchange(server_host_.offers, {});
  server_host_.offers.push_back(up[0]);
  server_host_.offers[0].unavailable = "port down: cable unplugged";
  const NetworkEnd* end = Connect();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_EQ(Reason(*end, "c0:1"), "server: port down: cable unplugged");
  server_host_.offers = up;
  end = Connect();
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.0.1.9)");
}

TEST_F(RdmaFallThroughTest, RouterPathsAreTriedOnlyWhereAllowed) {
  server_host_.offers = {Port("s0:1", "10.9.0.9")};
  const NetworkEnd* end = Connect();
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_EQ(Reason(*end, "c0:1").find("no common subnet (10.0.1.7/24 at the client"), 0u);
  ConnectOptions options = Impatient();
  options.link.allow_routed = true;
  end = Connect(options);
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.9.0.9)");
}

TEST_F(RdmaFallThroughTest, ConnectionsWithDifferentNumbersUseDifferentCardsAtBothEnds) {
  ConnectOptions second = Impatient();
  second.link.first_port = 1;
  ASSERT_NE(Connect(), nullptr);
  const NetworkEnd* end = Connect(second);
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c1:1 (RoCE v2, 10.0.2.7) to s1:1 (10.0.2.9)");

  // All in one subnet: any two of them fit.
  client_host_.offers = {Port("c0:1", "10.0.1.7"), Port("c1:1", "10.0.1.8")};
  server_host_.offers = {Port("s0:1", "10.0.1.9"), Port("s1:1", "10.0.1.10")};
  listener_.reset();
  client_ = EngineOn(&client_host_);
  server_ = EngineOn(&server_host_);
  end = Connect();
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.0.1.9)");
  end = Connect(second);
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c1:1 (RoCE v2, 10.0.1.8) to s1:1 (10.0.1.10)");
}

TEST_F(RdmaFallThroughTest, WithoutItsCardAConnectionUsesTheOtherOne) {
  ConnectOptions second = Impatient();
  second.link.first_port = 1;
  client_host_.faults = {{"c1:1", Fault::kLinkFails}};
  const NetworkEnd* const end = Connect(second);
  ASSERT_NE(end, nullptr);
  ExpectChosen(*end, "verbs c0:1 (RoCE v2, 10.0.1.7) to s0:1 (10.0.1.9)");
}

TEST_F(RdmaFallThroughTest, OptionsReachTheChoiceOfDevices) {
  ConnectOptions options = Impatient();
  options.link.devices = {"c1", "c0:1"};
  options.link.gid_index = 3;
  options.link.subnets = {"10.0.0.0/8"};
  options.link.first_port = 3;
  ASSERT_NE(Connect(options), nullptr);
  ASSERT_EQ(client_host_.filters.size(), 1u);
  EXPECT_EQ(client_host_.filters[0].devices, options.link.devices);
  EXPECT_EQ(client_host_.filters[0].gid_index, 3);
  ASSERT_EQ(client_host_.filters[0].subnets.size(), 1u);
  EXPECT_EQ(client_host_.filters[0].subnets[0].text, "10.0.0.0/8");
  EXPECT_EQ(client_host_.filters[0].first_port, 3u);
  EXPECT_EQ(server_host_.filters.back().first_port, 3u) << "the server goes by the client's";
}

TEST_F(RdmaFallThroughTest, DevicesAreNotEvenLookedForWhereVerbsIsDenied) {
  ConnectOptions options = Impatient();
  options.link.denied_paths = {PathKind::kVerbs};
  const NetworkEnd* const end = Connect(options);
  ASSERT_NE(end, nullptr);
  EXPECT_EQ(end->path(), "tcp");
  EXPECT_TRUE(client_host_.filters.empty());
  EXPECT_NE(end->explained().find("denied by its options (denied_paths = verbs)"),
            std::string::npos)
      << end->explained();
}

TEST_F(RdmaFallThroughTest, OnlyVerbsMeansNothingElse) {
  for (const char* device : {"c0:1", "c1:1"}) client_host_.faults[device] = Fault::kCannotOpen;
  Listen("127.0.0.1:0");
  ConnectOptions options = Impatient();
  options.link.paths = {PathKind::kVerbs};
  const NetworkEnd* const end = Dial(options);
  ASSERT_TRUE(RunUntilDecided(*end));
  ASSERT_TRUE(end->closed());
  EXPECT_TRUE(absl::IsUnavailable(end->why())) << end->why();
  EXPECT_NE(std::string(end->why().message()).find("memlock 8 MiB"), std::string::npos)
      << end->why();
}

}  // namespace
}  // namespace weft
