// What is special about links over connected endpoints: who may connect, and sleeping on a
// descriptor.

#include <poll.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/ofi/testing/poll_hook.h"
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

TEST_P(MsgTest, OfSeveralLinksThatWaitEachHasItsOwnNonce) {
  LinkEnd others[2];
  for (const uint64_t number : {0, 1}) {
    auto link = b_.domain->Accept(b_.PeerOf(a_, 1 + 2 * number), &others[number]);
    ASSERT_TRUE(link.ok());
    others[number].link = *std::move(link);
  }
  Accept(2);
  Connect(2);
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
  for (const LinkEnd& other : others) EXPECT_EQ(other.ups + other.downs, 0);
  LinkEnd late;
  late.link = *a_.domain->Connect(a_.PeerOf(b_, 3), &late);
  EXPECT_TRUE(Run([&] { return late.ups == 1 && others[1].ups == 1; }));
  EXPECT_EQ(others[0].ups + others[0].downs, 0) << "it still waits";
}

TEST_P(MsgTest, ANonceIsGoodOnce) {
  Accept(1);
  Connect(1);
  ASSERT_TRUE(Run([&] { return a_.endpoint.ups == 1 && b_.endpoint.ups == 1; }));
  LinkEnd thief;
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

TEST_P(MsgTest, HalfOpenLinksCloseCleanly) {
  const int descriptors = CountDescriptors();
  for (int i = 0; i < 20; ++i) {
    Accept(1);
    Connect(1);
    a_.endpoint.link.reset();
    b_.endpoint.link.reset();
  }
  EXPECT_TRUE(Run([&] { return CountDescriptors() <= descriptors; }));
  EXPECT_EQ(a_.domain->stats().links_open + b_.domain->stats().links_open, 0u);
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

  LinkEnd active_[kLinks];
  LinkEnd passive_[kLinks];
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

// What comes after a long silence is not missed, nor what a peer reads, of which the owner never
// hears.
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

// Sleeping while a socket is full: no descriptor tells of what the provider holds back unless it
// was asked for the room.
class SleeperTest : public testing::Test {
 protected:
  SleeperTest() : a_(PathKind::kOfiTcp), b_(PathKind::kOfiTcp) {
    EXPECT_TRUE(a_.domain->AddSlots(64, 64).ok());
    EXPECT_TRUE(b_.domain->AddSlots(64, 64).ok());
    LinkEnds(a_, a_.endpoint, b_, b_.endpoint, /*nonce=*/1);
  }

  // While only `b_` works.
  template <class Done>
  bool AIsWokenUnless(Done done) {
    const auto give_up = std::chrono::steady_clock::now() + kTestPatience;
    pollfd waiting = {a_.domain->descriptor(), POLLIN, 0};
    while (!done() && poll(&waiting, 1, /*timeout=*/0) == 0) {
      b_.domain->Poll(64);
      if (std::chrono::steady_clock::now() > give_up) return false;
    }
    return true;
  }

  Side a_;
  Side b_;
};

// fi_trywait() had the provider wait for room in a socket that was full.
TEST_F(SleeperTest, ASleeperGoesOnWhenItsSocketHasRoomAgain) {
  // 40 MB: more than two sockets hold.
  constexpr uint32_t kMessages = 10'000;
  const std::string text(4000, 'h');
  ASSERT_TRUE(a_.domain->AddSlots(kMessages, 0).ok());
  for (uint32_t i = 0; i < kMessages; ++i) ASSERT_TRUE(a_.Send(text).ok());
  const auto all_came = [&] { return b_.received.size() == kMessages; };
  int sleeps = 0;
  while (!all_came()) {
    if (a_.domain->Arm()) {
      ++sleeps;
      ASSERT_TRUE(AIsWokenUnless(all_came)) << b_.received.size() << " have come";
    }
    a_.domain->Poll(64);
  }
  EXPECT_GT(sleeps, 0);
}

// A look before the sleep served a read of the peer's, whose answer the socket had no room for. The
// provider asks for the room with the next look, and there was none: the answer went on with the
// next heartbeat. Whichever look of those before a sleep it is: the answer goes on.
TEST_F(SleeperTest, ASleeperGoesOnWithAnAnswerThatItBeganBeforehand) {
  LongRead of_a(a_, b_);
  int look = 1;
  for (;; ++look) {
    for (int i = 0; i < 10; ++i) a_.domain->Poll(64);  // nothing stands against a sleep
    CountedOperation read;
    const PollHook hook(look, [&] { ASSERT_TRUE(of_a.Start(*b_.endpoint.link, &read).ok()); });
    bool sleeps = a_.domain->Arm();
    if (!PollHook::has_acted()) break;
    for (; read.completions == 0; sleeps = a_.domain->Arm()) {
      if (sleeps) {
        ASSERT_TRUE(AIsWokenUnless([&] { return read.completions > 0; })) << "look " << look;
      }
      a_.domain->Poll(64);
      b_.domain->Poll(64);
    }
    EXPECT_TRUE(read.status.ok()) << read.status;
    EXPECT_TRUE(of_a.IsThere());
  }
  EXPECT_GT(look, 1);
}

// A client's domain has no second port that a stranger could reach.
TEST(OfiTcpDomain, WithoutAnAddressToListenAtConnectsOnly) {
  Side server(PathKind::kOfiTcp);
  Side client(PathKind::kOfiTcp, {}, /*host=*/"");
  ASSERT_TRUE(server.domain->AddSlots(16, 16).ok() && client.domain->AddSlots(16, 16).ok());
  EXPECT_EQ(client.domain->address(), "");
  EXPECT_EQ(client.domain->Accept(client.PeerOf(server, 1), &client.endpoint).status().code(),
            absl::StatusCode::kFailedPrecondition);
  LinkEnds(client, client.endpoint, server, server.endpoint, /*nonce=*/2);
  ASSERT_TRUE(client.Send("there").ok());
  ASSERT_TRUE(server.Send("and back").ok());
  EXPECT_TRUE(RunUntil({&client, &server},
                       [&] { return client.received.size() == 1 && server.received.size() == 1; }));
}

TEST(OfiOptions, AreCheckedAndNamed) {
  OfiOptions options;
  EXPECT_EQ(OpenOfiTcpDomain(options).status().code(), absl::StatusCode::kInvalidArgument);
  Side sink(PathKind::kOfiTcp);
  options.sink = &sink;
  options.slot_bytes = 1000;
  EXPECT_NE(OpenOfiTcpDomain(options).status().message().find("slot_bytes"), std::string::npos);
  options.slot_bytes = 1024;
  options.max_outstanding_operations = 0;
  EXPECT_NE(OpenOfiTcpDomain(options).status().message().find("max_outstanding_operations"),
            std::string::npos);
}

TEST(Discovery, SaysWhyAProviderIsNotUsable) {
  OfiOptions options;
  Side sink(PathKind::kOfiTcp);
  options.sink = &sink;
  options.bind_address = "192.0.2.1";  // of the documentation: no interface has it
  const absl::Status status = OpenOfiTcpDomain(options).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("192.0.2.1"), std::string::npos) << status;
  EXPECT_NE(DescribeProviders().find("tcp"), std::string::npos);
}

}  // namespace
}  // namespace weft
