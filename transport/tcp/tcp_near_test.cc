// The near link, which is read in each turn and which epoll(7) then does not watch: it hears of
// everything all the same, and so do the others. And which link is read before epoll is asked.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "transport/link.h"
#include "transport/tcp/tcp_parts.h"
#include "transport/tcp/testing/tcp_side.h"
#include "transport/testing/post.h"

namespace weft {
namespace {

// The kernel has no room for another watched socket (/proc/sys/fs/epoll/max_user_watches).
bool watches_are_out = false;

}  // namespace
}  // namespace weft

extern "C" int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) noexcept {
  if (weft::watches_are_out && operation == EPOLL_CTL_ADD) {
    errno = ENOSPC;
    return -1;
  }
  return static_cast<int>(syscall(SYS_epoll_ctl, epoll, operation, fd, event));
}

namespace weft {
namespace {

// More than make a link near, and have it not watched.
constexpr int kManyBatches = 100;

class TcpNearTest : public testing::Test {
 protected:
  void SetUp() override {
    TcpLinkEnds(a_, a_.end, b_, b_.end, 17);
    TcpLinkEnds(a_, other_of_a_, b_, other_of_b_, 18);
    for (int i = 0; i < kManyBatches; ++i) {
      ASSERT_TRUE(a_.Send("a request for b").ok());
      ASSERT_TRUE(Run([&] { return Take(b_) == 1; }));
      ASSERT_TRUE(b_.Send("b's answer to a").ok());
      ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
    }
  }

  void TearDown() override { watches_are_out = false; }

  template <class Done>
  bool Run(Done done) {
    return TcpRunUntil({&a_, &b_}, done);
  }
  // How many batches have arrived since the last time.
  static size_t Take(TcpSide& side) {
    const size_t count = side.received.size();
    side.received.clear();
    return count;
  }
  // Turns until there is no work: nothing that b has sent is under way to a.
  static void Settle(TcpSide& side) {
    while (!side.domain->Arm() || side.IsReadable()) side.domain->Poll(64);
  }

  // b destroys its end of the near link, and a, which has heard of that, calls by the other.
  void EndTheNearOneAndCallByTheOther() {
    b_.end.link.reset();
    ASSERT_TRUE(Run([&] { return a_.end.downs == 1; }));
    ASSERT_TRUE(a_.Send(other_of_a_, "a request for b").ok());
    a_.Poll();  // looks for the answer
    ASSERT_TRUE(Run([&] { return Take(b_) == 1; }));
  }

  TcpSide a_, b_;
  LinkEnd other_of_a_, other_of_b_;
};

TEST_F(TcpNearTest, WhatArrivesMakesNoEventUntilTheEngineWantsToSleep) {
  ASSERT_FALSE(a_.IsReadable());
  ASSERT_TRUE(b_.Send("from b, unasked for").ok());
  EXPECT_FALSE(a_.IsReadable()) << "the near link is watched";
  EXPECT_FALSE(a_.domain->Arm() && !a_.IsReadable()) << "it would sleep over what has arrived";
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
}

TEST_F(TcpNearTest, AnEngineThatHasArmedIsWoken) {
  Settle(a_);
  EXPECT_FALSE(a_.IsReadable());
  ASSERT_TRUE(b_.Send("from b, while a sleeps").ok());
  EXPECT_TRUE(a_.IsReadable());
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
}

TEST_F(TcpNearTest, OthersAreHeardOfAndTakeItsPlace) {
  for (int i = 0; i < kManyBatches; ++i) {
    ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
    ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  }
  ASSERT_TRUE(b_.Send("by the link that was near").ok());
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  for (int i = 0; i < kManyBatches; ++i) {
    ASSERT_TRUE(b_.Send(i % 2 == 0 ? other_of_b_ : b_.end, "by turns").ok());
    ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  }
}

TEST_F(TcpNearTest, ASocketThatIsFullIsWaitedForByEvents) {
  constexpr size_t kBytes = size_t{64} << 20;  // more than the kernel takes
  std::vector<std::byte> here(kBytes, std::byte{7}), there(kBytes);
  auto local = std::move(a_.domain->Register(here, Access::kLocalOnly)).value();
  auto remote = std::move(b_.domain->Register(there, Access::kRemoteReadWrite)).value();
  CountedOperation write;
  ASSERT_TRUE(Write(*a_.end.link, *local, 0, remote->remote(), &write).ok());
  Settle(a_);
  b_.Poll();  // makes room
  ASSERT_TRUE(Run([&] { return write.completions == 1; }));
  EXPECT_TRUE(write.status.ok()) << write.status;
  EXPECT_EQ(here, there);
}

TEST_F(TcpNearTest, ItsEndIsHeardOf) {
  b_.end.link.reset();
  ASSERT_TRUE(Run([&] { return a_.end.downs == 1; }));
  EXPECT_EQ(a_.end.down_status.code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
}

TEST_F(TcpNearTest, ItMayBeDestroyed) {
  a_.end.link.reset();
  ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  ASSERT_TRUE(Run([&] { return b_.end.downs == 1; }));
}

// What the near link had brought counted for whichever link was asked after its end: that one was
// not watched any more, and nobody watched it again before the engine slept.
TEST_F(TcpNearTest, AfterItsEndAnAnswerByAnotherWakesAnEngineThatHasArmed) {
  EndTheNearOneAndCallByTheOther();
  Settle(a_);
  ASSERT_TRUE(b_.Send(other_of_b_, "b's answer to a").ok());
  ASSERT_TRUE(a_.IsReadable()) << "the link that was asked is not watched";
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
}

// Nor was it read in turns once a third link had brought something: its calls waited for ever.
TEST_F(TcpNearTest, AfterItsEndAnAnswerIsHeardOfThoughAThirdLinkBringsSomethingBefore) {
  LinkEnd third_of_a, third_of_b;
  TcpLinkEnds(a_, third_of_a, b_, third_of_b, 19);
  EndTheNearOneAndCallByTheOther();
  ASSERT_TRUE(b_.Send(third_of_b, "by the third link").ok());
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  Settle(a_);
  ASSERT_TRUE(b_.Send(other_of_b_, "b's answer to a").ok());
  ASSERT_TRUE(a_.IsReadable()) << "the link that was asked is not watched";
  ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
}

TEST_F(TcpNearTest, OneThatCannotBeWatchedAgainEndsAndAnotherTakesItsPlace) {
  watches_are_out = true;
  for (int i = 0; i < kManyBatches && a_.end.downs == 0; ++i) {
    ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
    ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  }
  watches_are_out = false;
  ASSERT_EQ(a_.end.downs, 1);
  EXPECT_THAT(std::string(a_.end.down_status.message()),
              testing::HasSubstr("watch the socket of a link"));
  for (int i = 0; i < kManyBatches; ++i) {
    ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
    ASSERT_TRUE(Run([&] { return Take(a_) == 1; }));
  }
  Settle(a_);
  ASSERT_TRUE(b_.Send(other_of_b_, "by the other link").ok());
  EXPECT_TRUE(a_.IsReadable());
}

TEST_F(TcpNearTest, AnEngineThatCannotWatchItDoesNotSleepButTellsOfItsEnd) {
  watches_are_out = true;
  const bool armed = a_.domain->Arm();
  watches_are_out = false;
  EXPECT_FALSE(armed);
  a_.Poll();
  EXPECT_EQ(a_.end.downs, 1);
}

// --- which link is likely -----------------------------------------------------------------------

// More than it takes to believe something.
constexpr int kManyTurns = 42;  // of three links

class TcpLikelyLinkTest : public testing::Test, private BatchSink {
 protected:
  void OnReceived(ByteSpan, LinkHandler*) override {}
  void Ask(int link) { likely_.OnSent(links_[link].get()); }
  void Take(int link) { likely_.OnReceived(links_[link].get()); }
  bool Likely(int link) const { return likely_.get() == links_[link].get(); }
  bool NoneLikely() const { return likely_.get() == nullptr; }

  TcpOptions Options() {
    TcpOptions options;
    options.sink = this;
    return options;
  }
  std::unique_ptr<TcpLink> NewLink() {
    return std::make_unique<TcpLink>(&parts_, &end_, LinkPeer());
  }

  TcpParts parts_{Options()};
  LinkEnd end_;
  std::unique_ptr<TcpLink> links_[3] = {NewLink(), NewLink(), NewLink()};
  TcpLikelyLink& likely_ = parts_.likely;  // links leave it when they go
};

TEST_F(TcpLikelyLinkTest, OneByWhichSomethingComesTwiceRunningIsLikely) {
  Take(0);
  EXPECT_TRUE(NoneLikely());
  Take(0);
  EXPECT_TRUE(Likely(0));
}

// A client whose calls went round a thousand links asked epoll(7) for each answer, though it came
// by the link that the request had left by.
TEST_F(TcpLikelyLinkTest, AClientThatAsksByTurnsExpectsAnAnswerByTheLinkThatItAsked) {
  for (int i = 0; i < kManyTurns; ++i) {
    Ask(i % 3);
    Take(i % 3);
    EXPECT_TRUE(NoneLikely()) << "nothing has been asked since";
  }
  for (int i = 0; i < kManyTurns; ++i) {
    Ask(i % 3);
    EXPECT_TRUE(Likely(i % 3));
    Take(i % 3);
  }
}

TEST_F(TcpLikelyLinkTest, AServerThatIsAskedByTurnsReadsNobodyInVain) {
  for (int i = 0; i < kManyTurns; ++i) {
    Take(i % 3);
    Ask(i % 3);  // the answer
    EXPECT_TRUE(NoneLikely());
  }
}

TEST_F(TcpLikelyLinkTest, OneWrongGuessEndsTheTrust) {
  for (int i = 0; i < kManyTurns; ++i) {
    Ask(i % 3);
    Take(i % 3);
  }
  Ask(0);
  ASSERT_TRUE(Likely(0));
  Take(1);
  Ask(2);
  EXPECT_TRUE(NoneLikely());
}

TEST_F(TcpLikelyLinkTest, ALinkThatIsGoneIsNotLikely) {
  for (int i = 0; i < kManyTurns; ++i) {
    Ask(i % 3);
    Take(i % 3);
  }
  Ask(0);
  ASSERT_TRUE(Likely(0));
  links_[0].reset();
  EXPECT_TRUE(NoneLikely());
  Take(1);
  Take(1);
  ASSERT_TRUE(Likely(1));
  links_[1].reset();
  EXPECT_TRUE(NoneLikely());
}

}  // namespace
}  // namespace weft
