// What is special about links over connected endpoints: who may connect, and sleeping on a
// descriptor.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/descriptor.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

class MsgTest : public testing::TestWithParam<PathKind> {
 protected:
  MsgTest() : a_(GetParam()), b_(GetParam()) {
    EXPECT_TRUE(a_.domain->AddSlots(16, 16).ok());
    EXPECT_TRUE(b_.domain->AddSlots(16, 16).ok());
  }

  void Accept(uint64_t nonce) {
    auto link = b_.domain->Accept(b_.PeerOf(a_, nonce), &b_.endpoint);
    ASSERT_TRUE(link.ok());
    b_.endpoint.link = *std::move(link);
  }
  void Connect(uint64_t nonce) {
    auto link = a_.domain->Connect(a_.PeerOf(b_, nonce), &a_.endpoint);
    ASSERT_TRUE(link.ok());
    a_.endpoint.link = *std::move(link);
  }
  template <class Done>
  bool Run(Done done) {
    return RunUntil({&a_, &b_}, done);
  }
  static bool Readable(Side& side) {
    pollfd waiting = {side.domain->descriptor(), POLLIN, 0};
    return poll(&waiting, 1, static_cast<int>(1000 * kTestPatience.count())) == 1;
  }
  // Bringing a link up takes the active side several steps on some providers.
  static bool ReadableWhileTheOtherWorks(Side& sleeper, Side& other) {
    const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
    pollfd waiting = {sleeper.domain->descriptor(), POLLIN, 0};
    while (poll(&waiting, 1, /*timeout=*/1) == 0) {
      other.domain->Poll(16);
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  Side a_;
  Side b_;
};

TEST_P(MsgTest, WrongNonceIsRejected) {
  Accept(1);
  Connect(2);
  ASSERT_TRUE(Run([&] { return a_.endpoint.downs == 1; }));
  EXPECT_EQ(a_.endpoint.down_status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(a_.endpoint.ups + b_.endpoint.ups + b_.endpoint.downs, 0)
      << "the other one still waits";
  a_.endpoint.link.reset();
  a_.endpoint.downs = 0;
  Connect(1);
  EXPECT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
}

TEST_P(MsgTest, ANonceIsGoodOnce) {
  Accept(1);
  Connect(1);
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
  Endpoint thief;
  auto link = a_.domain->Connect(a_.PeerOf(b_, 1), &thief);
  ASSERT_TRUE(link.ok());
  ASSERT_TRUE(Run([&] { return thief.downs == 1; }));
  EXPECT_EQ(b_.endpoint.downs, 0);
}

TEST_P(MsgTest, ClosingTellsThePeer) {
  Accept(1);
  Connect(1);
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
  a_.endpoint.link.reset();
  ASSERT_TRUE(Run([&] { return b_.endpoint.downs == 1; }));
  EXPECT_EQ(b_.endpoint.down_status.code(), absl::StatusCode::kUnavailable);
}

// Since libfabric 1.19 tcp goes on behind a batch that no receive holds: nobody was told of it, and
// both ends waited for what was lost. Either the sink gets the batch's beginning, which is as long
// as a receive, or the link ends.
TEST_P(MsgTest, ABatchThatNoReceiveHoldsIsNotLostInSilence) {
  OfiOptions wide;
  wide.slot_bytes = 2 * b_.domain->slot_bytes();
  Side large(GetParam(), wide);
  ASSERT_TRUE(large.domain->AddSlots(16, 16).ok());
  LinkEnds(large, large.endpoint, b_, b_.endpoint, /*nonce=*/1);
  std::string text(wide.slot_bytes, 'l');
  text.replace(0, 9, "beginning");
  ASSERT_TRUE(large.Send(text).ok());
  ASSERT_TRUE(RunUntil({&large, &b_}, [&] {
    return !b_.received.empty() || b_.endpoint.downs + large.endpoint.downs > 0;
  }));
  if (!b_.received.empty()) {
    EXPECT_EQ(b_.received[0], text.substr(0, b_.domain->slot_bytes()));
  }
}

// Of the two queues of one group, at most.
constexpr int kQueueDescriptors = 8;

TEST_P(MsgTest, HalfOpenLinksCloseCleanly) {
  const int descriptors = OpenDescriptors();
  for (int i = 0; i < 20; ++i) {
    Accept(1);
    Connect(1);
    a_.endpoint.link.reset();
    b_.endpoint.link.reset();
  }
  // The queues of a group are kept for later links.
  const int kept = kTestNearLinks > 0 ? 0 : kQueueDescriptors;
  EXPECT_TRUE(Run([&] { return OpenDescriptors() <= descriptors + kept; }));
  EXPECT_EQ(a_.domain->stats().links_open + b_.domain->stats().links_open, 0u);
}

// The engine watches control sockets in the epoll that tcp sleeps on. One that gets the number of a
// socket that a link has closed would leave the epoll with the next sleep.
TEST(SleepEpollTest, ADescriptorWithTheNumberOfAClosedSocketStaysWatched) {
  const Descriptor epoll(epoll_create1(EPOLL_CLOEXEC));
  OfiOptions options;
  options.sleep_epoll = epoll.get();
  Side a(PathKind::kTcp, options);
  Side b(PathKind::kTcp);
  ASSERT_TRUE(a.domain->AddSlots(16, 16).ok() && b.domain->AddSlots(16, 16).ok());
  auto passive = b.domain->Accept(b.PeerOf(a, 1), &b.endpoint);
  auto active = a.domain->Connect(a.PeerOf(b, 1), &a.endpoint);
  ASSERT_TRUE(passive.ok() && active.ok());
  b.endpoint.link = *std::move(passive);
  a.endpoint.link = *std::move(active);
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return a.endpoint.ups == 1 && b.endpoint.ups == 1; }));

  epoll_event events[64];
  const int patience_ms = static_cast<int>(1000 * kTestPatience.count());
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return a.domain->Arm(); }));
  ASSERT_TRUE(b.Send("wake up").ok());
  ASSERT_GE(epoll_wait(epoll.get(), events, 64, patience_ms), 1);
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return a.received.size() == 1 && a.domain->Arm(); }));

  a.endpoint.link.reset();
  constexpr size_t kLater = 32;
  constexpr uint64_t kMark = 7;
  std::vector<Descriptor> later;
  for (size_t i = 0; i < kLater; ++i) {
    later.emplace_back(eventfd(0, EFD_CLOEXEC));
    epoll_event event = {};
    event.events = EPOLLIN;
    event.data.u64 = kMark;
    ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, later.back().get(), &event), 0);
  }
  ASSERT_TRUE(RunUntil({&a, &b}, [&] { return a.domain->Arm(); }));
  for (const Descriptor& fd : later) ASSERT_EQ(eventfd_write(fd.get(), 1), 0);
  const int ready = epoll_wait(epoll.get(), events, 64, /*timeout=*/0);
  EXPECT_EQ(std::count_if(events, events + std::max(ready, 0),
                          [](const epoll_event& event) { return event.data.u64 == kMark; }),
            static_cast<ptrdiff_t>(kLater));
}

TEST_P(MsgTest, AnArmedDomainWakesForConnectionsAndMessages) {
  Accept(1);
  while (!b_.domain->Arm()) b_.domain->Poll(16);
  Connect(1);
  a_.domain->Poll(16);
  // Both sides need several steps; each is announced by the descriptor.
  while (b_.endpoint.ups == 0) {
    a_.domain->Poll(16);
    if (b_.domain->Arm()) {
      ASSERT_TRUE(ReadableWhileTheOtherWorks(b_, a_));
    }
    b_.domain->Poll(16);
  }
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1; }));
  for (int i = 0; i < 200; ++i) {
    b_.received.clear();
    while (!b_.domain->Arm()) b_.domain->Poll(16);
    ASSERT_TRUE(Run([&] { return a_.Send("wake up").ok(); }));
    while (b_.received.empty()) {
      ASSERT_TRUE(Readable(b_));
      b_.domain->Poll(16);
    }
  }
}

// Many links use another queue of the provider than the first few, and sleep on another descriptor.
// Each of them wakes a sleeper, also after a time in which nothing slept, and after others have
// gone.
class ManyLinksTest : public MsgTest {
 protected:
  static constexpr size_t kLinks = 12;

  void Open(size_t i) {
    active_[i].ups = passive_[i].ups = passive_[i].downs = 0;
    auto accepted = b_.domain->Accept(b_.PeerOf(a_, i + 1), &passive_[i]);
    auto connected = a_.domain->Connect(a_.PeerOf(b_, i + 1), &active_[i]);
    ASSERT_TRUE(accepted.ok() && connected.ok());
    passive_[i].link = *std::move(accepted);
    active_[i].link = *std::move(connected);
    ASSERT_TRUE(Run([&] { return active_[i].ups == 1 && passive_[i].ups == 1; }));
  }
  void Close(size_t i) {
    active_[i].link.reset();
    ASSERT_TRUE(Run([&] { return passive_[i].downs == 1; }));
    passive_[i].link.reset();
  }
  void Send(size_t i) {
    b_.received.clear();
    ASSERT_TRUE(Run([&] { return a_.Send(active_[i], "hello").ok(); }));
    ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  }
  void Wake(size_t i) {
    b_.received.clear();
    while (!b_.domain->Arm()) b_.domain->Poll(16);
    ASSERT_TRUE(a_.Send(active_[i], "wake up").ok());
    while (b_.received.empty()) {
      ASSERT_TRUE(Readable(b_)) << "link " << i;
      b_.domain->Poll(16);
    }
  }

  Endpoint active_[kLinks];
  Endpoint passive_[kLinks];
};

TEST_P(ManyLinksTest, AnyOfThemWakesASleeper) {
  for (size_t i = 0; i < kLinks; ++i) Open(i);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < kLinks; ++i) Wake(i);
    for (size_t i = 0; i < kLinks; ++i) Send(i);
    for (size_t i = 1; i < kLinks; i += 2) Close(i);
    for (size_t i = 0; i < kLinks; i += 2) Wake(i);
    for (size_t i = 1; i < kLinks; i += 2) Open(i);
  }
}

// An engine that has not heard of a path for long looks at it now and then only: it must not miss
// what comes then, nor what a peer reads, of which it never hears.
TEST_P(MsgTest, AQuietLinkIsHeardAndServes) {
  Accept(1);
  Connect(1);
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
  const auto be_quiet = [&] {
    for (int i = 0; i < 5000; ++i) {
      a_.domain->Poll(16);
      b_.domain->Poll(16);
    }
  };
  be_quiet();
  ASSERT_TRUE(a_.Send("after a long time").ok());
  ASSERT_TRUE(Run([&] { return b_.received.size() == 1; }));
  std::vector<std::byte> memory(100, std::byte{7});
  std::vector<std::byte> sink(100);
  auto lent = b_.domain->Register({memory.data(), memory.size()}, Access::kRemoteRead);
  auto local = a_.domain->Register({sink.data(), sink.size()}, Access::kLocalOnly);
  ASSERT_TRUE(lent.ok() && local.ok());
  be_quiet();
  CountedOperation read;
  ASSERT_TRUE(Read(*a_.endpoint.link, **local, 0, (*lent)->remote(), &read).ok());
  ASSERT_TRUE(Run([&] { return read.completions == 1; }));
  EXPECT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(sink, memory);
}

std::vector<PathKind> ConnectedPaths() {
  std::vector<PathKind> kinds = TestedPaths();
  std::erase(kinds, PathKind::kShm);
  return kinds;
}

std::string NameOf(const testing::TestParamInfo<PathKind>& info) {
  return std::string(PathKindName(info.param));
}

INSTANTIATE_TEST_SUITE_P(Providers, ManyLinksTest, testing::ValuesIn(ConnectedPaths()), NameOf);
INSTANTIATE_TEST_SUITE_P(Providers, MsgTest, testing::ValuesIn(ConnectedPaths()), NameOf);

TEST(TcpDomain, OnAllInterfacesHasAnAddressWithoutHost) {
  OfiOptions options;
  Side sink(PathKind::kTcp);
  options.sink = &sink;
  auto domain = OpenTcpDomain(options);
  ASSERT_TRUE(domain.ok()) << domain.status();
  const std::string address = (*domain)->address();
  ASSERT_EQ(address.substr(0, 2), "*:");
  EXPECT_EQ(WithHost(address, "10.0.0.7"), "10.0.0.7" + address.substr(1));
  EXPECT_EQ(WithHost(address, "fe80::1"), "[fe80::1]" + address.substr(1));
  EXPECT_EQ(WithHost("127.0.0.1:5", "10.0.0.7"), "127.0.0.1:5");
}

TEST(OfiOptions, AreCheckedAndNamed) {
  OfiOptions options;
  EXPECT_EQ(OpenTcpDomain(options).status().code(), absl::StatusCode::kInvalidArgument);
  Side sink(PathKind::kTcp);
  options.sink = &sink;
  options.slot_bytes = 1000;
  EXPECT_NE(OpenTcpDomain(options).status().message().find("slot_bytes"), std::string::npos);
  options.slot_bytes = 1024;
  options.max_outstanding_operations = 0;
  EXPECT_NE(OpenTcpDomain(options).status().message().find("max_outstanding_operations"),
            std::string::npos);
}

TEST(Discovery, SaysWhyAProviderIsNotUsable) {
  OfiOptions options;
  Side sink(PathKind::kTcp);
  options.sink = &sink;
  options.bind_address = "192.0.2.1";  // of the documentation: no interface has it
  const absl::Status status = OpenTcpDomain(options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("192.0.2.1"), std::string::npos) << status;
  EXPECT_NE(DescribeProviders().find("tcp"), std::string::npos);
}

}  // namespace
}  // namespace weft
