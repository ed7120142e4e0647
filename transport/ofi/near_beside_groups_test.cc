// The near queue where there are queue groups, too: its sockets are in their epoll, and it is not
// looked at in every turn.

#include <poll.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "transport/ofi/queue_groups.h"
#include "transport/ofi/testing/link_fixture.h"
#include "transport/ofi/testing/poll_hook.h"

namespace weft {
namespace {

constexpr uint32_t kWindow = 64;
constexpr size_t kLinks = kTestNearLinks + 2;
constexpr size_t kFar = kTestNearLinks;  // the first that is in a group
// More than the looks behind which it rests, fewer than between two visits.
constexpr int kSomeTurns = 200;

class NearBesideGroupsTest : public testing::Test {
 protected:
  NearBesideGroupsTest() : a_(PathKind::kTcp), b_(PathKind::kTcp) {
    EXPECT_TRUE(a_.domain->AddSlots(kWindow * kLinks, kWindow * kLinks).ok());
    EXPECT_TRUE(b_.domain->AddSlots(kWindow * kLinks, kWindow * kLinks).ok());
    for (size_t i = 0; i < kLinks; ++i) Open(i);
  }
  void SetUp() override {
    if (!FI_VERSION_LT(fi_version(), FI_VERSION(1, 18))) GTEST_SKIP() << "one queue for all here";
  }

  void Open(size_t i) { LinkEnds(a_, of_a_[i], b_, of_b_[i], ++nonces_); }

  void TurnsOfA(int turns) {
    for (int i = 0; i < turns; ++i) a_.domain->Poll(64);
  }

  // A message by the link is there a few turns after the kernel has brought it.
  void IsHeardSoon(size_t i) {
    const size_t had = a_.received.size();
    ASSERT_TRUE(b_.Send(of_b_[i], "hello").ok());
    b_.domain->Poll(64);
    for (int turn = 0; a_.received.size() == had; ++turn) {
      ASSERT_LT(turn, kSomeTurns) << "link " << i;
      a_.domain->Poll(64);
    }
  }

  uint64_t nonces_ = 0x4321;
  Side a_;
  Side b_;
  Endpoint of_a_[kLinks];
  Endpoint of_b_[kLinks];
};

// It was polled in each turn, 0.5 us, before groups were silent for 1,024 looks.
TEST_F(NearBesideGroupsTest, ASilentNearQueueIsNotLookedAt) {
  IsHeardSoon(kFar);
  TurnsOfA(kSomeTurns);
  const PollHook hook(/*nth=*/8, [] {});
  TurnsOfA(kSomeTurns);
  EXPECT_FALSE(PollHook::has_acted());
}

TEST_F(NearBesideGroupsTest, AMessageToItIsHeard) {
  for (int round = 0; round < 20; ++round) {
    TurnsOfA(kSomeTurns);
    IsHeardSoon(static_cast<size_t>(round) % kTestNearLinks);
  }
}

// News are told once: of two messages that came together none is left.
TEST_F(NearBesideGroupsTest, ManyMessagesAtOnceAreHeard) {
  for (int round = 0; round < 20; ++round) {
    TurnsOfA(kSomeTurns);
    a_.received.clear();
    for (int k = 0; k < 4; ++k) {
      for (Endpoint& each : of_b_) ASSERT_TRUE(b_.Send(each, "one of many").ok());
    }
    for (int turn = 0; a_.received.size() < 4 * kLinks; ++turn) {
      ASSERT_LT(turn, kSomeTurns) << "round " << round << ": " << a_.received.size();
      a_.domain->Poll(1);  // a budget for one
    }
  }
}

TEST_F(NearBesideGroupsTest, ALinkThatComesIntoItWhileItRestsIsHeard) {
  for (int round = 0; round < 5; ++round) {
    of_a_[0].link.reset();
    of_b_[0].link.reset();
    TurnsOfA(kSomeTurns);
    Open(0);
    TurnsOfA(kSomeTurns);
    IsHeardSoon(0);
    IsHeardSoon(1);
  }
}

TEST_F(NearBesideGroupsTest, NobodySleepsOverAMessageToIt) {
  for (int round = 0; round < 20; ++round) {
    TurnsOfA(kSomeTurns);
    const size_t had = a_.received.size();
    ASSERT_TRUE(b_.Send(of_b_[static_cast<size_t>(round) % kTestNearLinks], "wake up").ok());
    b_.domain->Poll(64);
    while (a_.received.size() == had) {
      if (a_.domain->Arm()) {
        pollfd fd = {a_.domain->descriptor(), POLLIN, 0};
        ASSERT_EQ(poll(&fd, 1, /*timeout=*/5000), 1) << "round " << round;
      }
      a_.domain->Poll(64);
    }
  }
}

// What was sent and had no room goes on by itself.
TEST_F(NearBesideGroupsTest, HeldUpMessagesGoOnAsSoonAsThereIsRoom) {
  const size_t messages = SendMoreThanFits(a_, of_a_[0]);
  TurnsOfA(kSomeTurns);
  uint32_t without = 0;
  while (b_.received.size() < messages) {
    const size_t had = b_.received.size();
    a_.domain->Poll(64);
    b_.domain->Poll(64);
    without = b_.received.size() == had ? without + 1 : 0;
    ASSERT_LT(without, 64u) << b_.received.size() << " have come";
  }
}

}  // namespace
}  // namespace weft
