// What every link promises, seen from both ends within one process.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"

namespace weft {
namespace {

constexpr uint32_t kWindow = 16;

class LinkTest : public testing::TestWithParam<PathKind> {
 protected:
  LinkTest() : a_(GetParam(), Options()), b_(GetParam(), Options()) {
    Add(a_);
    Add(b_);
  }

  static OfiOptions Options() {
    OfiOptions options;
    options.slot_bytes = 8192;
    options.max_outstanding_operations = 32;
    return options;
  }

  static void Add(Side& side) { ASSERT_TRUE(side.domain->AddSlots(kWindow, kWindow).ok()); }

  // Over shared memory slots are places in a link's ring, and the domain has none.
  static bool SlotsAreTheLinks() { return GetParam() == PathKind::kShm; }

  void Open(LinkEnd& a, LinkEnd& b) {
    LinkEnds(a_, a, b_, b, ++nonce_);
    ASSERT_TRUE(a.ups == 1 && b.ups == 1);
  }
  void Open() { Open(a_.endpoint, b_.endpoint); }
  void Close() {
    a_.endpoint.link.reset();
    b_.endpoint.link.reset();
  }

  template <class Done>
  bool Run(Done done) {
    return RunUntil({&a_, &b_}, done);
  }

  // Sends when there is a slot and the peer's window has room.
  void SendAll(int count, size_t bytes) {
    for (int i = 0; i < count; ++i) {
      std::string text = std::to_string(i) + ":";
      text.resize(std::max(bytes, text.size()), static_cast<char>('a' + i % 26));
      ASSERT_TRUE(Run([&] { return static_cast<size_t>(i) - b_.received.size() < kWindow; }));
      ASSERT_TRUE(Run([&] { return a_.Send(text).ok(); }));
    }
    ASSERT_TRUE(Run([&] { return b_.received.size() == static_cast<size_t>(count); }));
  }

  Side a_;
  Side b_;
  uint64_t nonce_ = 0x1234;
};

TEST_P(LinkTest, BothSidesComeUpOnce) {
  Open();
  EXPECT_EQ(a_.endpoint.downs, 0);
  EXPECT_EQ(b_.endpoint.downs, 0);
  EXPECT_EQ(a_.domain->stats().links_open, 1u);
}

TEST_P(LinkTest, BytesArriveAsSent) {
  Open();
  ASSERT_TRUE(a_.Send("x").ok());
  ASSERT_TRUE(b_.Send("a reply").ok());
  ASSERT_TRUE(Run([&] { return !a_.received.empty() && !b_.received.empty(); }));
  EXPECT_EQ(b_.received[0], "x");
  EXPECT_EQ(a_.received[0], "a reply");
}

TEST_P(LinkTest, EverySizeArrivesWhole) {
  Open();
  // Around the limits of the providers: inline 192, 128 and 4096, and the slot itself.
  const size_t slot = a_.domain->slot_bytes();
  for (const size_t bytes : {size_t{1}, size_t{2}, size_t{127}, size_t{128}, size_t{129},
                             size_t{191}, size_t{192}, size_t{193}, size_t{4095}, slot - 1, slot}) {
    std::string text(bytes, 'q');
    text.front() = '<';
    text.back() = '>';
    b_.received.clear();
    ASSERT_TRUE(a_.Send(text).ok());
    ASSERT_TRUE(Run([&] { return b_.received.size() == 1; })) << bytes;
    EXPECT_EQ(b_.received[0], text) << bytes;
  }
}

TEST_P(LinkTest, BatchesArriveInOrderAcrossSizes) {
  Open();
  for (const size_t bytes : {size_t{8}, size_t{4000}, size_t{a_.domain->slot_bytes()}}) {
    b_.received.clear();
    SendAll(300, bytes);
    for (int i = 0; i < 300; ++i) {
      ASSERT_EQ(b_.received[i].substr(0, b_.received[i].find(':')), std::to_string(i));
    }
  }
}

TEST_P(LinkTest, SmallAfterLargeDoesNotOvertake) {
  Open();
  const std::string large(a_.domain->slot_bytes(), 'L');
  for (int round = 0; round < 50; ++round) {
    b_.received.clear();
    ASSERT_TRUE(Run([&] { return a_.Send(large).ok(); }));
    ASSERT_TRUE(Run([&] { return a_.Send("s").ok(); }));
    ASSERT_TRUE(Run([&] { return b_.received.size() == 2; }));
    EXPECT_EQ(b_.received[0], large);
    EXPECT_EQ(b_.received[1], "s");
  }
}

TEST_P(LinkTest, NoSlotIsAnAnswerAndFreeSlotsAreTold) {
  if (SlotsAreTheLinks()) GTEST_SKIP() << "shm_domain_test says so of slots that links have";
  Open();
  std::vector<SendSlot> held;
  for (SendSlot slot; (slot = a_.domain->AcquireSlot()).data != nullptr;) held.push_back(slot);
  EXPECT_EQ(held.size(), kWindow);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, kWindow);
  a_.domain->Poll(1);
  EXPECT_EQ(a_.endpoint.slots_free, 0);
  for (SendSlot slot : held) a_.domain->ReleaseSlot(slot);
  a_.domain->Poll(1);
  EXPECT_EQ(a_.endpoint.slots_free, 1);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

TEST_P(LinkTest, SendBeforeUpIsRefusedAndTakesTheSlot) {
  LinkEnd early;
  auto link = a_.domain->Accept(a_.PeerOf(b_, 77), &early);
  ASSERT_TRUE(link.ok());
  if (SlotsAreTheLinks()) {
    EXPECT_EQ((*link)->TakeSlot(1).data, nullptr);
  } else {
    const SendSlot slot = a_.domain->AcquireSlot();
    EXPECT_EQ((*link)->Send(slot, 1).code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

// More is sent than the peer has receives posted, and the peer does not poll: nothing is lost,
// nothing blocks.
TEST_P(LinkTest, SlowReceiverGetsEverythingLater) {
  Open();
  const std::string text(3000, 'z');
  uint32_t sent = 0;
  while (sent < kWindow && a_.Send(text).ok()) ++sent;
  // Where slots are a link's there are as many as its ring holds; the others come later.
  ASSERT_TRUE(sent == kWindow || SlotsAreTheLinks()) << sent;
  for (int i = 0; i < 100; ++i) a_.domain->Poll(64);
  EXPECT_TRUE(b_.received.empty());
  ASSERT_TRUE(Run([&] {
    sent += sent < kWindow && a_.Send(text).ok();
    return b_.received.size() == kWindow;
  }));
  ASSERT_TRUE(Run([&] { return !a_.domain->busy(); }));
}

TEST_P(LinkTest, ReceivesArePostedAgain) {
  Open();
  SendAll(kWindow * 5, 100);
  EXPECT_EQ(b_.domain->stats().receives_posted, kWindow);
}

TEST_P(LinkTest, SlotsCanBeAddedAndRemoved) {
  ASSERT_TRUE(a_.domain->AddSlots(100, 100).ok());
  EXPECT_EQ(a_.domain->stats().receives_posted, kWindow + 100);
  const uint64_t registrations = a_.domain->stats().registrations;
  a_.domain->RemoveSlots(100, 100);
  ASSERT_TRUE(Run([&] { return a_.domain->stats().receives_posted == kWindow; }));
  ASSERT_TRUE(a_.domain->AddSlots(100, 100).ok());
  EXPECT_EQ(a_.domain->stats().registrations, registrations) << "memory is kept";
  Open();
  SendAll(40, 50);
}

// A thousand connections once needed half a gigabyte here, of which they used next to nothing.
TEST_P(LinkTest, ConnectionsOverOfiTcpShareReceivesAndSendMemory) {
  if (GetParam() != PathKind::kOfiTcp) GTEST_SKIP() << "elsewhere each window is posted";
  Open();
  for (int connection = 0; connection < 1000; ++connection) {
    ASSERT_TRUE(b_.domain->AddSlots(64, 64).ok());
  }
  const LinkDomainStats& stats = b_.domain->stats();
  EXPECT_LE(stats.receives_posted, 128u);
  EXPECT_EQ(stats.receives_posted + stats.receives_withheld, kWindow + 64'000u);
  EXPECT_LE(stats.registrations * 64 * b_.domain->slot_bytes(), 1000u * (64u << 10));
  SendAll(kWindow * 5, 100);
}

TEST_P(LinkTest, PoolBoundIsNamed) {
  OfiOptions options = Options();
  options.max_pool_bytes = uint64_t{64} * a_.domain->slot_bytes();
  Side small(GetParam(), options);
  absl::Status status = small.domain->AddSlots(60, 70);
  // Over shared memory the bound is that of the links' rings: it is met by connections, not slots.
  for (int i = 0; SlotsAreTheLinks() && status.ok() && i < 64; ++i) {
    status = small.domain->AddSlots(60, 70);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(std::string(status.message()).find("max_pool_bytes"), std::string::npos) << status;
  if (SlotsAreTheLinks()) small.domain->RemoveSlots(60, 70);
  EXPECT_TRUE(small.domain->AddSlots(32, 32).ok());
}

TEST_P(LinkTest, HandlerMayDestroyTheLinkInsideAnyCallback) {
  Open();
  a_.on_received = [&] { a_.endpoint.link.reset(); };
  b_.endpoint.on_down = [&] { b_.endpoint.link.reset(); };
  ASSERT_TRUE(b_.Send("go").ok());
  ASSERT_TRUE(Run([&] { return a_.endpoint.link == nullptr; }));
  ASSERT_TRUE(Run([&] { return b_.endpoint.link == nullptr; }));
}

// An active link that is given up while it comes up.
TEST_P(LinkTest, GivingUpWhileGreetingDoesNotHarmThePeer) {
  for (int polls_before = 0; polls_before < 5; ++polls_before) {
    LinkEnd a, b;
    const uint64_t nonce = ++nonce_;
    auto passive = b_.domain->Accept(b_.PeerOf(a_, nonce), &b);
    ASSERT_TRUE(passive.ok());
    b.link = *std::move(passive);
    auto active = a_.domain->Connect(a_.PeerOf(b_, nonce), &a);
    ASSERT_TRUE(active.ok());
    for (int i = 0; i < polls_before; ++i) a_.domain->Poll(64);
    active->reset();
    for (int i = 0; i < 100; ++i) {
      b_.domain->Poll(64);
      a_.domain->Poll(64);
    }
    b.link.reset();
  }
  Open();
  SendAll(10, 10);
  EXPECT_FALSE(a_.domain->busy());
}

TEST_P(LinkTest, AcceptedNonceIsForOneLink) {
  LinkEnd first, second;
  auto link = a_.domain->Accept(a_.PeerOf(b_, 7), &first);
  ASSERT_TRUE(link.ok());
  EXPECT_EQ(a_.domain->Accept(a_.PeerOf(b_, 7), &second).status().code(),
            absl::StatusCode::kInvalidArgument);
  link->reset();
  if (GetParam() == PathKind::kShm) return;  // the memory of a link is for that link alone
  EXPECT_TRUE(a_.domain->Accept(a_.PeerOf(b_, 7), &second).ok());
}

TEST_P(LinkTest, AddressesOfPeersAreChecked) {
  for (const char* bad :
       {"", "x", "weft-", "weft-0123456789abcdeX", "../etc/passwd", "127.0.0.1", "127.0.0.1:0",
        "127.0.0.1:99999", "localhost:1", "*:5", "[::1]", "weft-0123456789abcdef/../../x"}) {
    LinkPeer peer;
    peer.address = bad;
    peer.nonce = 1;
    LinkEnd endpoint;
    EXPECT_EQ(a_.domain->Connect(peer, &endpoint).status().code(),
              absl::StatusCode::kInvalidArgument)
        << bad;
  }
  EXPECT_EQ(a_.domain->stats().links_open, 0u);
}

TEST_P(LinkTest, ConnectingToNobodyFails) {
  LinkPeer peer;
  peer.address = "127.0.0.1:1";
  if (GetParam() == PathKind::kShm) peer = a_.PeerOf(b_, 1);  // who does not accept
  if (GetParam() == PathKind::kVerbs) peer.address = FindTestRdmaPort()->host + ":1";
  peer.nonce = 1;
  LinkEnd endpoint;
  auto link = a_.domain->Connect(peer, &endpoint);
  if (link.ok()) {
    ASSERT_TRUE(Run([&] { return endpoint.downs == 1; }));
    EXPECT_EQ(endpoint.down_status.code(), absl::StatusCode::kUnavailable);
  } else {
    EXPECT_EQ(link.status().code(), absl::StatusCode::kUnavailable);
  }
}

// --- closing -----------------------------------------------------------------------------------

TEST_P(LinkTest, ClosingWithSendsInFlightReturnsEverySlot) {
  for (int round = 0; round < 20; ++round) {
    LinkEnd a, b;
    Open(a, b);
    const std::string text(a_.domain->slot_bytes(), 'w');
    while (a_.Send(a, text).ok()) {
    }
    a.link.reset();
    EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
    b.link.reset();
    for (int i = 0; i < 50; ++i) {
      a_.domain->Poll(64);
      b_.domain->Poll(64);
    }
    ASSERT_TRUE(Run([&] { return b_.domain->stats().receives_posted == kWindow; }));
  }
}

TEST_P(LinkTest, TwoHundredLinksLeaveNothingBehind) {
  {
    LinkEnd a, b;
    Open(a, b);
  }  // what the library makes once is made now
  for (int i = 0; i < 10; ++i) {
    a_.domain->Poll(64);
    b_.domain->Poll(64);
  }
  const int descriptors = CountDescriptors();
  const size_t files = ShmFiles();
  const LinkDomainStats before = a_.domain->stats();
  for (int round = 0; round < 200; ++round) {
    LinkEnd a, b;
    ASSERT_NO_FATAL_FAILURE(Open(a, b));
    b_.received.clear();
    ASSERT_TRUE(a_.Send(a, "hello").ok());
    ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
    if (round % 2 == 0) std::swap(a.link, b.link);  // either side may go first
  }
  ASSERT_TRUE(Run([&] {
    return a_.domain->stats().receives_posted == kWindow &&
           b_.domain->stats().receives_posted == kWindow;
  }));
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_EQ(ShmFiles(), files);
  EXPECT_EQ(a_.domain->stats().registrations, before.registrations);
  EXPECT_EQ(a_.domain->stats().registrations_open, before.registrations_open);
  EXPECT_EQ(a_.domain->stats().links_open, 0u);
  EXPECT_EQ(a_.domain->stats().send_slots_in_use, 0u);
}

TEST_P(LinkTest, DomainsLeaveNothingBehind) {
  const int descriptors = CountDescriptors();
  const size_t files = ShmFiles();
  for (int round = 0; round < 10; ++round) {
    Side c(GetParam(), Options());
    Side d(GetParam(), Options());
    Add(c);
    Add(d);
    auto passive = d.domain->Accept(d.PeerOf(c, 9), &d.endpoint);
    ASSERT_TRUE(passive.ok());
    d.endpoint.link = *std::move(passive);
    auto active = c.domain->Connect(c.PeerOf(d, 9), &c.endpoint);
    ASSERT_TRUE(active.ok());
    c.endpoint.link = *std::move(active);
    ASSERT_TRUE(RunUntil({&c, &d}, [&] { return c.endpoint.ups + d.endpoint.ups == 2; }));
    ASSERT_TRUE(c.Send("bye").ok());
    ASSERT_TRUE(RunUntil({&c, &d}, [&] { return d.received.size() == 1; }));
  }
  EXPECT_EQ(CountDescriptors(), descriptors);
  EXPECT_EQ(ShmFiles(), files);
}

TEST_P(LinkTest, SendingToAClosedDomainOfThisProcessIsHarmless) {
  auto gone = std::make_unique<Side>(GetParam(), Options());
  Add(*gone);
  auto passive = gone->domain->Accept(gone->PeerOf(a_, 5), &gone->endpoint);
  ASSERT_TRUE(passive.ok());
  gone->endpoint.link = *std::move(passive);
  auto active = a_.domain->Connect(a_.PeerOf(*gone, 5), &a_.endpoint);
  ASSERT_TRUE(active.ok());
  a_.endpoint.link = *std::move(active);
  ASSERT_TRUE(RunUntil({&a_, gone.get()}, [&] { return a_.endpoint.ups == 1; }));
  ASSERT_TRUE(a_.Send("while it lives").ok());
  ASSERT_TRUE(RunUntil({&a_, gone.get()}, [&] { return gone->received.size() == 1; }));
  gone->endpoint.link.reset();
  gone.reset();
  a_.Send("too late").IgnoreError();
  a_.domain->Poll(64);
  a_.endpoint.link->Abandon();
  a_.endpoint.link.reset();
}

INSTANTIATE_TEST_SUITE_P(Providers, LinkTest, testing::ValuesIn(TestedPaths()),
                         [](const auto& info) { return std::string(PathKindName(info.param)); });

}  // namespace
}  // namespace weft
