#include "transport/framing/credit_window.h"

#include <gtest/gtest.h>

#include <deque>

#include "core/random.h"
#include "core/test_seed.h"

namespace weft {
namespace {

// Two sides and the batches between them, in the hands of a scheduler.
class TwoSides {
 public:
  TwoSides(uint32_t window_a, uint32_t window_b) {
    side_[0].window.Start(window_b, window_a);
    side_[1].window.Start(window_a, window_b);
  }

  // Each returns whether it was possible.
  bool SendFrames(int from) { return side_[from].window.MaySendFrames() && Send(from, true); }
  bool ReturnOnly(int from) {
    CreditWindow& window = side_[from].window;
    return window.ShouldReturn() && window.MayReturnOnly() && Send(from, false);
  }
  bool Receive(int at) {
    std::deque<uint16_t>& arriving = side_[1 - at].in_flight;
    if (arriving.empty()) return false;
    CreditWindow& window = side_[at].window;
    EXPECT_TRUE(window.Arrive()) << "a batch without a receive";
    EXPECT_TRUE(window.Regain(arriving.front())) << "credits from nowhere";
    arriving.pop_front();
    window.Owe();
    return true;
  }

  // Nothing is made or lost: credits, batches in flight, debts and returns in flight add up.
  void CheckConserved() const {
    for (int at : {0, 1}) {
      const CreditWindow& sender = side_[1 - at].window;
      const CreditWindow& receiver = side_[at].window;
      uint64_t returning = 0;
      for (uint16_t credits : side_[at].in_flight) returning += credits;
      ASSERT_EQ(sender.credits() + side_[1 - at].in_flight.size() + receiver.owed() + returning,
                receiver.receive_window());
      receiver.CheckInvariants();
    }
  }
  uint64_t frames_sent(int from) const { return side_[from].frames_sent; }
  uint64_t returns_sent(int from) const { return side_[from].returns_sent; }
  bool quiet() const { return side_[0].in_flight.empty() && side_[1].in_flight.empty(); }

 private:
  struct Side {
    CreditWindow window;
    std::deque<uint16_t> in_flight;  // sent by this side: the credits that each returns
    uint64_t frames_sent = 0;
    uint64_t returns_sent = 0;
  };

  bool Send(int from, bool frames) {
    side_[from].window.Spend();
    side_[from].in_flight.push_back(side_[from].window.TakeOwed());
    ++(frames ? side_[from].frames_sent : side_[from].returns_sent);
    return true;
  }

  Side side_[2];
};

class CreditWindowTest : public testing::TestWithParam<std::pair<uint32_t, uint32_t>> {
 protected:
  const uint64_t seed_ = TestSeed();
  testing::ScopedTrace trace_{__FILE__, __LINE__, SeedTrace(seed_)};
  Random random_{seed_};
};

// One side, or both, always want to send; the network is as slow, and the sides as lazy, as the
// scheduler pleases; once it lets things run, somebody can always go on.
TEST_P(CreditWindowTest, WhoWantsToSendIsNeverStuckForEver) {
  const auto [window_a, window_b] = GetParam();
  for (int round = 0; round < 300; ++round) {
    TwoSides sides(window_a, window_b);
    const bool wants[2] = {true, random_.Chance(0.5)};
    for (int step = 0; step < 400; ++step) {
      const int side = static_cast<int>(random_.Uniform(2));
      switch (random_.Uniform(3)) {
        case 0:
          if (wants[side]) sides.SendFrames(side);
          break;
        case 1:
          sides.ReturnOnly(side);
          break;
        default:
          sides.Receive(side);
      }
      ASSERT_NO_FATAL_FAILURE(sides.CheckConserved());
    }
    const uint64_t before = sides.frames_sent(0);
    for (int step = 0; step < 100; ++step) {
      for (int side : {0, 1}) {
        while (sides.Receive(side)) {
        }
        sides.ReturnOnly(side);
        if (wants[side]) sides.SendFrames(side);
      }
    }
    ASSERT_GE(sides.frames_sent(0), before + 50);
  }
}

TEST_P(CreditWindowTest, ReturnsDoNotKeepEachOtherGoing) {
  const auto [window_a, window_b] = GetParam();
  TwoSides sides(window_a, window_b);
  while (sides.SendFrames(0)) {
  }
  for (int step = 0; step < 1000; ++step) {
    for (int side : {0, 1}) {
      while (sides.Receive(side)) {
      }
      sides.ReturnOnly(side);
    }
  }
  EXPECT_TRUE(sides.quiet());
  EXPECT_LE(sides.returns_sent(0) + sides.returns_sent(1), 4u);
}

INSTANTIATE_TEST_SUITE_P(Windows, CreditWindowTest,
                         testing::Values(std::pair{4, 4}, std::pair{4, 5}, std::pair{5, 5},
                                         std::pair{4, 64}, std::pair{7, 9}, std::pair{64, 64},
                                         std::pair{1024, 4}));

TEST(CreditWindow, APeerThatInventsCreditsIsCaught) {
  CreditWindow window;
  window.Start(8, 8);
  EXPECT_FALSE(window.Regain(1));
  window.Spend();
  EXPECT_FALSE(window.Regain(2));
  EXPECT_FALSE(window.Regain(~uint32_t{0}));
  EXPECT_TRUE(window.Regain(1));
}

TEST(CreditWindow, APeerThatSendsWithoutCreditIsCaught) {
  CreditWindow window;
  window.Start(4, 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(window.Arrive());
    window.Owe();
  }
  EXPECT_FALSE(window.Arrive());
  EXPECT_EQ(window.TakeOwed(), 4);
  EXPECT_TRUE(window.Arrive());
}

}  // namespace
}  // namespace weft
