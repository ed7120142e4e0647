// What is special about links over verbs. Where there is no RDMA port these tests are skipped; the
// lab runs them on Soft-RoCE and Soft-iWARP.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/ofi/verbs_domain.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

class VerbsTest : public testing::Test {
 protected:
  void SetUp() override {
    port_ = FindTestRdmaPort();
    if (!port_.has_value()) {
      GTEST_SKIP() << "this host has no usable RDMA port; ./dev lab test runs this on two kinds";
    }
  }

  OfiOptions OptionsOf(Side& sink) const {
    OfiOptions options;
    options.sink = &sink;
    options.bind_address = port_->host;
    options.device = port_->device;
    options.link = port_->link;
    return options;
  }
  // At an address in the port's subnet that nobody has.
  LinkPeer Nobody() const {
    LinkPeer peer;
    peer.address = port_->host.substr(0, port_->host.rfind('.')) + ".250:4711";
    peer.nonce = 1;
    return peer;
  }

  // rdma_cm's ids that the kernel holds for anybody; -1: unknown.
  static int CountConnectionIds() {
    FILE* lines = popen("rdma resource show cm_id 2>/dev/null", "r");
    if (lines == nullptr) return -1;
    int count = 0;
    for (int c = fgetc(lines); c != EOF; c = fgetc(lines)) count += c == '\n';
    return pclose(lines) == 0 ? count : -1;
  }

  static void OpenLink(Side& a, Side& b) {
    LinkEnds(a, a.endpoint, b, b.endpoint, /*nonce=*/1);
    ASSERT_TRUE(a.endpoint.ups == 1 && b.endpoint.ups == 1);
  }

  std::optional<TestRdmaPort> port_;
};

TEST_F(VerbsTest, ThePathSaysWhichDeviceAndLinkItIs) {
  Side side(PathKind::kVerbs);
  const PathInfo& path = side.domain->path();
  EXPECT_EQ(path.kind, PathKind::kVerbs);
  EXPECT_EQ(path.device, port_->device);
  EXPECT_EQ(path.link, port_->link);
  EXPECT_NE(path.provider.find("verbs"), std::string::npos);
  EXPECT_EQ(path.local.find(port_->host + ":"), 0u) << path.local;
}

// libfabric looks for the way to a peer inside fi_endpoint(), for two seconds: the engine would
// stand still for all its connections.
TEST_F(VerbsTest, AnAddressWhereNobodyAnswersIsAskedForOnTheSide) {
  Side side(PathKind::kVerbs);
  LinkEnd endpoint;
  auto link = side.domain->Connect(Nobody(), &endpoint);
  ASSERT_TRUE(link.ok()) << link.status();
  EXPECT_EQ(endpoint.downs, 0);
  while (!side.domain->Arm()) side.domain->Poll(16);
  ASSERT_TRUE(RunUntil({&side}, [&] { return endpoint.downs == 1; }));
  EXPECT_EQ(endpoint.down_status.code(), absl::StatusCode::kUnavailable) << endpoint.down_status;
}

TEST_F(VerbsTest, ALinkMayGoWhileItsAddressIsAskedFor) {
  Side side(PathKind::kVerbs);
  LinkEnd endpoint;
  auto link = side.domain->Connect(Nobody(), &endpoint);
  ASSERT_TRUE(link.ok()) << link.status();
  link->reset();
  for (int i = 0; i < 10; ++i) side.domain->Poll(16);
  side.domain.reset();
  EXPECT_EQ(endpoint.downs, 0);
}

// More connects at once than there are threads for their addresses: all come up.
TEST_F(VerbsTest, ManyConnectsAtOnceWaitForTheirTurn) {
  constexpr size_t kLinks = 30;
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  std::vector<LinkEnd> active(kLinks), passive(kLinks);
  for (size_t i = 0; i < kLinks; ++i) {
    auto accepted = b.domain->Accept(b.PeerOf(a, i + 1), &passive[i]);
    ASSERT_TRUE(accepted.ok()) << accepted.status();
    passive[i].link = *std::move(accepted);
    auto connected = a.domain->Connect(a.PeerOf(b, i + 1), &active[i]);
    ASSERT_TRUE(connected.ok()) << connected.status();
    active[i].link = *std::move(connected);
  }
  active[0].link.reset();           // while a thread asks for it
  active[kLinks - 1].link.reset();  // while it waits for one
  size_t up = 0;
  ASSERT_TRUE(RunUntil({&a, &b},
                       [&] {
                         up = 0;
                         for (const LinkEnd& end : active) up += end.ups;
                         return up == kLinks - 2;
                       }))
      << up << " of " << kLinks - 2;
}

TEST_F(VerbsTest, WithoutThreadsConnectItselfSaysThatNobodyAnswers) {
  Side side(PathKind::kVerbs);
  OfiOptions options = OptionsOf(side);
  options.may_start_threads = false;
  auto domain = VerbsDomain::Open(options);
  ASSERT_TRUE(domain.ok()) << domain.status();
  LinkEnd endpoint;
  EXPECT_FALSE((*domain)->Connect(Nobody(), &endpoint).ok());
}

// The provider takes a numeric IPv6 address for no address at all unless its family is told.
TEST_F(VerbsTest, LinksComeUpOverIpv6) {
  const auto v6 = FindTestRdmaPort(/*v6=*/true);
  if (!v6.has_value()) GTEST_SKIP() << "the RDMA port has no IPv6 address";
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  for (Side* side : {&a, &b}) {
    side->domain.reset();
    OfiOptions options = OptionsOf(*side);
    options.bind_address = v6->host;
    auto domain = OpenVerbsDomain(options);
    ASSERT_TRUE(domain.ok()) << domain.status();
    side->domain = *std::move(domain);
    ASSERT_TRUE(side->domain->AddSlots(8, 8).ok());
  }
  OpenLink(a, b);
  ASSERT_TRUE(a.Send("over IPv6").ok());
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return b.received.size() == 1; }));
}

// Anybody who reaches the port can send connection requests. Each that was rejected left an id of
// rdma_cm behind, in the process and in the kernel.
TEST_F(VerbsTest, RejectedRequestsLeaveNothingBehind) {
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  const int ids = CountConnectionIds();
  if (ids < 0) GTEST_SKIP() << "the `rdma` tool is not here to count with";
  for (int i = 0; i < 5; ++i) {
    LinkEnd stranger;
    auto link = a.domain->Connect(a.PeerOf(b, 4711), &stranger);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE(RunUntil({&a, &b}, [&] { return stranger.downs == 1; }));
    EXPECT_EQ(stranger.down_status.code(), absl::StatusCode::kUnavailable) << stranger.down_status;
  }
  // The kernel takes down the passive side's ids in its own time: on a busy machine, after this.
  EXPECT_TRUE(RunUntil({&a, &b}, [&] { return CountConnectionIds() <= ids; }))
      << CountConnectionIds() << " connection ids, " << ids << " before";
}

// One entry more than a completion queue holds ends every connection of it: what does not fit has
// to wait, and all of it completes.
TEST_F(VerbsTest, ASmallCompletionQueueIsNeverOverrun) {
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  a.domain.reset();
  auto small = VerbsDomain::Open(OptionsOf(a), {64, 4});
  ASSERT_TRUE(small.ok()) << small.status();
  a.domain = *std::move(small);
  ASSERT_TRUE(a.domain->AddSlots(64, 32).ok());
  ASSERT_TRUE(b.domain->AddSlots(64, 64).ok());
  EXPECT_FALSE(a.domain->AddSlots(8, 64).ok()) << "more receives than the queue has room for";
  OpenLink(a, b);

  std::vector<std::byte> here(64), there(64);
  auto local = a.domain->Register(here, Access::kLocalOnly);
  auto remote = b.domain->Register(there, Access::kRemoteReadWrite);
  ASSERT_TRUE(local.ok() && remote.ok());
  std::vector<CountedOperation> writes(200);
  for (CountedOperation& write : writes) {
    ASSERT_TRUE(Write(*a.endpoint.link, **local, 0, (*remote)->remote(), &write).ok());
  }
  for (int i = 0; i < 60; ++i) ASSERT_TRUE(a.Send("message").ok());
  EXPECT_GT(a.domain->stats().eagain, 0u);
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return b.received.size() == 60 && !a.domain->busy(); }));
  for (const CountedOperation& write : writes) {
    EXPECT_EQ(write.completions, 1);
    EXPECT_TRUE(write.status.ok()) << write.status;
  }
  EXPECT_EQ(a.endpoint.downs + b.endpoint.downs, 0);
}

// What arrived is answered before its receive is posted again. Peers must not notice: one that has
// been given so many receives finds them, and over iWARP a message without one ends the connection.
TEST_F(VerbsTest, AReceiveThatWaitsIsNoneOfThoseThatPeersMayUse) {
  constexpr uint32_t kReceives = 8;
  struct Watcher final : BatchSink {
    void OnReceived(ByteSpan, LinkHandler*) override {
      ++received;
      least = std::min(least, domain->stats().receives_posted);
    }
    LinkDomain* domain = nullptr;
    uint32_t received = 0;
    uint64_t least = kReceives;
  };
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  Watcher watcher;
  b.domain.reset();
  OfiOptions options = OptionsOf(b);
  options.sink = &watcher;
  auto watched = OpenVerbsDomain(options);
  ASSERT_TRUE(watched.ok()) << watched.status();
  b.domain = *std::move(watched);
  watcher.domain = b.domain.get();
  ASSERT_TRUE(a.domain->AddSlots(kReceives, kReceives).ok());
  ASSERT_TRUE(b.domain->AddSlots(kReceives, kReceives).ok());
  OpenLink(a, b);
  for (uint32_t round = 1; round <= 20; ++round) {
    for (uint32_t i = 0; i < kReceives; ++i) {
      const absl::Status sent = a.Send("message");
      ASSERT_TRUE(sent.ok()) << sent;
    }
    // And a send slot for each in the next round.
    ASSERT_TRUE(RunUntil({&a, &b}, [&] {
      return watcher.received == round * kReceives && a.domain->stats().send_slots_in_use == 0;
    }));
    b.domain->Poll(1);  // finds nothing, and posts them again
  }
  EXPECT_EQ(watcher.least, kReceives);
  EXPECT_EQ(a.endpoint.downs + b.endpoint.downs, 0);
}

// A cable that was cut while the control connection went by another one was noticed by nobody on
// Soft-RoCE. The kernel's word is made up: the port itself stays up, and so does the other end.
TEST_F(VerbsTest, LinksOverAPortThatGoesDownEndAtThisSideAndNoneBegins) {
  const std::string sysfs = testing::TempDir() + "port_that_goes_down";
  const size_t colon = port_->device.rfind(':');
  const std::string folder = sysfs + "/class/infiniband/" + port_->device.substr(0, colon) +
                             "/ports/" + port_->device.substr(colon + 1);
  std::filesystem::create_directories(folder);
  const auto set_state = [&](const std::string& state) {
    std::ofstream(folder + "/state") << state << "\n";
  };
  set_state("4: ACTIVE");
  std::ofstream(folder + "/phys_state") << "3: Disabled\n";
  FakeClock clock;
  TimerWheel timers(clock.NowNs());
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  a.domain.reset();
  OfiOptions options = OptionsOf(a);
  options.clock = &clock;
  options.timers = &timers;
  options.sysfs = sysfs;
  auto watched = OpenVerbsDomain(options);
  ASSERT_TRUE(watched.ok()) << watched.status();
  a.domain = *std::move(watched);
  ASSERT_TRUE(a.domain->AddSlots(8, 8).ok());
  ASSERT_TRUE(b.domain->AddSlots(8, 8).ok());
  OpenLink(a, b);
  const auto look = [&] {
    clock.Advance(PortWatch::kLookNs + TimerWheel::kTickNs);
    timers.Advance(clock.NowNs());
  };
  look();
  ASSERT_TRUE(a.Send("while it is up").ok());
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return b.received.size() == 1; }));
  EXPECT_EQ(a.endpoint.downs, 0);

  set_state("1: DOWN");
  look();
  EXPECT_EQ(a.endpoint.downs, 0) << "a handler hears of it from Poll() alone";
  EXPECT_FALSE(a.domain->Arm());
  ASSERT_TRUE(RunUntil({&a}, [&] { return a.endpoint.downs == 1; }));
  EXPECT_TRUE(absl::IsUnavailable(a.endpoint.down_status)) << a.endpoint.down_status;
  EXPECT_NE(a.endpoint.down_status.message().find("is DOWN, Disabled: look at its cable"),
            absl::string_view::npos)
      << a.endpoint.down_status;
  EXPECT_TRUE(absl::IsUnavailable(a.Send("too late")));
  LinkEnd next;
  EXPECT_TRUE(absl::IsUnavailable(a.domain->Connect(a.PeerOf(b, 2), &next).status()));
  EXPECT_TRUE(absl::IsUnavailable(a.domain->Accept(a.PeerOf(b, 3), &next).status()));

  a.endpoint.link.reset();
  look();
  EXPECT_EQ(timers.size(), 0u) << "no link is left";
  ASSERT_TRUE(RunUntil({&b}, [&] { return b.endpoint.downs == 1; }));
  b.endpoint.link.reset();
  set_state("4: ACTIVE");
  LinkEnds(a, a.endpoint, b, b.endpoint, /*nonce=*/4);
  EXPECT_EQ(timers.size(), 1u);
}

TEST_F(VerbsTest, AKeyLongerThanTheDevicesIsRefusedAtOnce) {
  Side a(PathKind::kVerbs), b(PathKind::kVerbs);
  ASSERT_TRUE(a.domain->AddSlots(8, 8).ok());
  ASSERT_TRUE(b.domain->AddSlots(8, 8).ok());
  OpenLink(a, b);
  std::vector<std::byte> here(64);
  auto local = a.domain->Register(here, Access::kLocalOnly);
  ASSERT_TRUE(local.ok());
  CountedOperation op;
  EXPECT_EQ(Read(*a.endpoint.link, **local, 0, {uint64_t{1} << 32, 0, 8}, &op).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(op.completions, 0);
}

TEST(VerbsOptions, DeviceAndAddressAreNeeded) {
  Side sink(PathKind::kOfiTcp);
  OfiOptions options;
  options.sink = &sink;
  EXPECT_EQ(OpenVerbsDomain(options).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(VerbsOptions, ADeviceThatIsNotThereIsAReasonInWords) {
  Side sink(PathKind::kOfiTcp);
  OfiOptions options;
  options.sink = &sink;
  options.device = "mlx5_77:1";
  options.bind_address = "192.0.2.1";  // of the documentation: no interface has it
  const absl::Status status = OpenVerbsDomain(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  // libfabric 1.17 does not list verbs where there is no device; later versions do (seen in 2.1).
  const bool is_listed = DescribeProviders().find("verbs") != std::string::npos;
  EXPECT_TRUE(is_listed || !FindTestRdmaPort().has_value());
  const char* reason = is_listed ? "192.0.2.1" : "finds no RDMA device";
  EXPECT_NE(status.message().find(reason), std::string::npos) << status;
}

}  // namespace
}  // namespace weft
