#include "transport/ofi/queue_look.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

class QueueLookTest : public testing::Test {
 protected:
  // Looks that find nothing, in so many turns.
  uint32_t LooksIn(uint32_t turns, bool awaited = false) {
    uint32_t looks = 0;
    for (uint32_t i = 0; i < turns; ++i) {
      if (!look_.IsDue(awaited)) continue;
      ++looks;
      look_.Looked(false);
    }
    return looks;
  }
  void BecomeQuiet() { LooksIn(QueueLook::kQuietLooks); }

  QueueLook look_;
};

TEST_F(QueueLookTest, WithoutEndpointsItIsLookedAtNowAndThen) {
  EXPECT_EQ(LooksIn(10 * QueueLook::kQuietTurns, /*awaited=*/true), 10u);
}

TEST_F(QueueLookTest, ABusyQueueIsLookedAtInEachTurn) {
  look_.Join();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(LooksIn(QueueLook::kQuietLooks - 1), QueueLook::kQuietLooks - 1);
    EXPECT_TRUE(look_.IsDue(false));
    look_.Looked(true);
  }
}

TEST_F(QueueLookTest, AQuietQueueIsLookedAtNowAndThen) {
  look_.Join();
  BecomeQuiet();
  EXPECT_EQ(LooksIn(10 * QueueLook::kQuietTurns), 10u);
}

TEST_F(QueueLookTest, AFindMakesItBusyAgain) {
  look_.Join();
  BecomeQuiet();
  look_.Looked(true);
  EXPECT_EQ(LooksIn(100), 100u);
}

TEST_F(QueueLookTest, WhatIsAwaitedIsLookedForInEachTurn) {
  look_.Join();
  BecomeQuiet();
  EXPECT_EQ(LooksIn(5000, /*awaited=*/true), 5000u);
}

TEST_F(QueueLookTest, ANewEndpointAndAnExpectationMakeItBusy) {
  look_.Join();
  BecomeQuiet();
  look_.Join();
  EXPECT_EQ(LooksIn(100), 100u);
  BecomeQuiet();
  look_.Expect();
  EXPECT_EQ(LooksIn(100), 100u);
}

}  // namespace
}  // namespace weft
