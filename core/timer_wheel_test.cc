#include "core/timer_wheel.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr uint64_t kTick = TimerWheel::kTickNs;

class TestTimer : public Timer {
 public:
  TestTimer() = default;
  explicit TestTimer(std::function<void()> on_fired) : action(std::move(on_fired)) {}

  int fired = 0;
  std::function<void()> action;

 private:
  void OnTimer() override {
    EXPECT_FALSE(armed());
    ++fired;
    // A copy: the action may destroy this timer.
    if (auto run = action) run();
  }
};

class TimerWheelTest : public testing::Test {
 protected:
  ~TimerWheelTest() override { wheel_.CheckInvariants(); }

  uint64_t start_ns_ = 12'345'678'901;
  TimerWheel wheel_{start_ns_};
};

TEST_F(TimerWheelTest, FiresOnceAndNeverEarly) {
  TestTimer timer;
  const uint64_t deadline_ns = start_ns_ + 5 * kNsPerMs;
  wheel_.Schedule(&timer, deadline_ns);
  EXPECT_TRUE(timer.armed());
  EXPECT_EQ(timer.deadline_ns(), deadline_ns);
  EXPECT_EQ(wheel_.Advance(deadline_ns - 1), 0);
  EXPECT_EQ(wheel_.Advance(deadline_ns + kTick), 1);
  EXPECT_FALSE(timer.armed());
  EXPECT_EQ(wheel_.Advance(deadline_ns + kNsPerSec), 0);
  EXPECT_EQ(timer.fired, 1);
}

TEST_F(TimerWheelTest, DeadlineOnATickFiresExactlyThen) {
  TestTimer timer;
  const uint64_t deadline_ns = (start_ns_ / kTick + 1000) * kTick;
  wheel_.Schedule(&timer, deadline_ns);
  EXPECT_EQ(wheel_.Advance(deadline_ns - 1), 0);
  EXPECT_EQ(wheel_.Advance(deadline_ns), 1);
}

TEST_F(TimerWheelTest, PastDeadlineFiresInTheNextAdvance) {
  TestTimer timer;
  wheel_.Schedule(&timer, 0);
  EXPECT_LE(wheel_.NextDeadlineNs(), start_ns_);
  EXPECT_EQ(timer.fired, 0);
  EXPECT_EQ(wheel_.Advance(start_ns_), 1);
}

TEST_F(TimerWheelTest, TimeBeforeTheLastCountsAsTheSame) {
  TestTimer due;
  TestTimer later;
  wheel_.Advance(start_ns_ + kNsPerSec);
  wheel_.Schedule(&due, start_ns_ + kNsPerMs);
  wheel_.Schedule(&later, start_ns_ + 2 * kNsPerSec);
  EXPECT_EQ(wheel_.Advance(start_ns_), 1);
  EXPECT_EQ(due.fired, 1);
  EXPECT_EQ(later.fired, 0);
}

TEST_F(TimerWheelTest, CancelledTimerDoesNotFire) {
  TestTimer timer;
  wheel_.Schedule(&timer, start_ns_ + kNsPerMs);
  wheel_.Cancel(&timer);
  wheel_.Cancel(&timer);
  EXPECT_FALSE(timer.armed());
  EXPECT_EQ(wheel_.NextDeadlineNs(), kNever);
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 0);
}

TEST_F(TimerWheelTest, SchedulingAgainMovesTheDeadline) {
  TestTimer timer;
  wheel_.Schedule(&timer, start_ns_ + kNsPerMs);
  wheel_.Schedule(&timer, start_ns_ + kNsPerSec);
  EXPECT_EQ(wheel_.size(), 1u);
  EXPECT_EQ(wheel_.Advance(start_ns_ + 500 * kNsPerMs), 0);
  wheel_.Schedule(&timer, start_ns_ + 600 * kNsPerMs);
  EXPECT_EQ(wheel_.Advance(start_ns_ + 700 * kNsPerMs), 1);
}

TEST_F(TimerWheelTest, NeverIsTheSameAsCancel) {
  TestTimer timer;
  wheel_.Schedule(&timer, start_ns_ + kNsPerMs);
  wheel_.Schedule(&timer, kNever);
  EXPECT_FALSE(timer.armed());
  EXPECT_EQ(wheel_.size(), 0u);
}

TEST_F(TimerWheelTest, NoDeadlineIsTooFar) {
  for (int bit = 35; bit < 64; ++bit) {
    TimerWheel wheel(start_ns_);
    TestTimer timer;
    const uint64_t deadline_ns = uint64_t{1} << bit;
    wheel.Schedule(&timer, deadline_ns);
    wheel.CheckInvariants();
    EXPECT_EQ(wheel.Advance(deadline_ns - 1), 0) << bit;
    wheel.CheckInvariants();
    EXPECT_EQ(wheel.Advance(deadline_ns), 1) << bit;
  }
  TestTimer last;
  wheel_.Schedule(&last, kNever - kTick);
  EXPECT_TRUE(last.armed());
  EXPECT_EQ(wheel_.Advance(kNever - 2 * kTick), 0);
  EXPECT_EQ(wheel_.Advance(kNever), 1);
}

TEST_F(TimerWheelTest, OneAdvanceFiresEverythingDueInOrderOfTicks) {
  std::vector<int> order;
  std::deque<TestTimer> timers;
  for (int i = 0; i < 200; ++i) {
    timers.emplace_back([&order, i] { order.push_back(i); });
  }
  for (int i = 0; i < 200; ++i) {
    // 7 is coprime to 200: a shuffled order of scheduling.
    const int which = i * 7 % 200;
    wheel_.Schedule(&timers[which], start_ns_ + static_cast<uint64_t>(which + 1) * 3 * kNsPerMs);
  }
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 200);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST_F(TimerWheelTest, CallbackMayScheduleItselfAgain) {
  TestTimer timer;
  timer.action = [&] { wheel_.Schedule(&timer, start_ns_ + 2 * kNsPerMs); };
  wheel_.Schedule(&timer, start_ns_ + kNsPerMs);
  // Long after both deadlines: the second was set within this Advance, and waits for the next.
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 1);
  EXPECT_TRUE(timer.armed());
  timer.action = nullptr;
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 1);
}

TEST_F(TimerWheelTest, TimerForThePastFromACallbackDoesNotKeepAdvanceBusy) {
  TestTimer timer;
  timer.action = [&] { wheel_.Schedule(&timer, 0); };
  wheel_.Schedule(&timer, 0);
  for (int i = 1; i <= 5; ++i) {
    EXPECT_EQ(wheel_.Advance(start_ns_), 1);
    EXPECT_EQ(timer.fired, i);
  }
}

TEST_F(TimerWheelTest, CallbackMayCancelAndMoveOthersDueInTheSameTick) {
  TestTimer cancelled;
  TestTimer moved;
  TestTimer first([&] {
    EXPECT_TRUE(cancelled.armed());
    wheel_.Cancel(&cancelled);
    wheel_.Schedule(&moved, start_ns_ + 3 * kNsPerSec);
    wheel_.CheckInvariants();
  });
  wheel_.Schedule(&first, start_ns_ + kNsPerMs);
  wheel_.Schedule(&cancelled, start_ns_ + 2 * kNsPerMs);
  wheel_.Schedule(&moved, start_ns_ + 2 * kNsPerMs);
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 1);
  EXPECT_EQ(cancelled.fired, 0);
  EXPECT_EQ(moved.fired, 0);
  EXPECT_EQ(wheel_.Advance(start_ns_ + 4 * kNsPerSec), 1);
  EXPECT_EQ(moved.fired, 1);
}

TEST_F(TimerWheelTest, CallbackMayDestroyItselfAndOthers) {
  auto self = std::make_unique<TestTimer>();
  auto other = std::make_unique<TestTimer>();
  self->action = [&] {
    self.reset();
    other.reset();
  };
  wheel_.Schedule(self.get(), start_ns_ + kNsPerMs);
  wheel_.Schedule(other.get(), start_ns_ + 2 * kNsPerMs);
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 1);
  EXPECT_EQ(wheel_.size(), 0u);
}

TEST_F(TimerWheelTest, DestroyedTimerCancelsItself) {
  {
    TestTimer timer;
    wheel_.Schedule(&timer, start_ns_ + kNsPerMs);
  }
  EXPECT_EQ(wheel_.size(), 0u);
  EXPECT_EQ(wheel_.NextDeadlineNs(), kNever);
  EXPECT_EQ(wheel_.Advance(start_ns_ + kNsPerSec), 0);
}

TEST(TimerWheel, DestroyedWheelDisarmsItsTimers) {
  TestTimer due;
  TestTimer later;
  {
    TimerWheel wheel(kNsPerSec);
    wheel.Schedule(&due, 0);
    wheel.Schedule(&later, kNsPerSec * 100);
  }
  EXPECT_FALSE(due.armed());
  EXPECT_FALSE(later.armed());
  EXPECT_EQ(due.fired, 0);
}

// A sleeper who always sleeps until NextDeadlineNs is never late by more than a tick, and wakes up
// a bounded number of times on the way.
TEST_F(TimerWheelTest, SleepingUntilTheNextDeadlineGetsThere) {
  for (const uint64_t wait_ns :
       {kNsPerUs, kNsPerMs, kNsPerSec, 1000 * kNsPerSec, 86'400 * kNsPerSec}) {
    TimerWheel wheel(start_ns_);
    TestTimer timer;
    const uint64_t deadline_ns = start_ns_ + wait_ns;
    wheel.Schedule(&timer, deadline_ns);
    uint64_t now_ns = start_ns_;
    int wake_ups = 0;
    while (timer.fired == 0) {
      const uint64_t next_ns = wheel.NextDeadlineNs();
      ASSERT_NE(next_ns, kNever);
      ASSERT_GE(next_ns, now_ns);
      now_ns = next_ns;
      wheel.Advance(now_ns);
      ++wake_ups;
    }
    EXPECT_GE(now_ns, deadline_ns);
    EXPECT_LT(now_ns, deadline_ns + kTick);
    EXPECT_LE(wake_ups, 8);
  }
}

// An engine that has polled an empty wheel for an hour: the wheel must not believe that it is still
// at the beginning, or a short timer would be filed under a level of hours.
TEST_F(TimerWheelTest, IdleTimeIsNotHeldAgainstTheNextTimer) {
  const uint64_t now_ns = start_ns_ + 3600 * kNsPerSec;
  EXPECT_EQ(wheel_.Advance(now_ns), 0);
  TestTimer timer;
  wheel_.Schedule(&timer, now_ns + 100 * kNsPerUs);
  EXPECT_GT(wheel_.NextDeadlineNs(), now_ns);
}

// Against a sorted multimap. Actions of callbacks are random too.
class TimerWheelModelTest : public testing::Test {
 protected:
  static constexpr int kTimers = 60;

  void Run(uint64_t seed, uint64_t longest_wait_ns, uint64_t longest_step_ns) {
    random_.emplace(seed);
    now_ns_ = random_->Uniform(uint64_t{1} << 62);
    wheel_.emplace(now_ns_);
    timers_.clear();
    model_.clear();
    longest_wait_ns_ = longest_wait_ns;
    for (int i = 0; i < kTimers; ++i) timers_.emplace_back([this, i] { OnFired(i); });
    for (int step = 0; step < 3000 && !HasFailure(); ++step) {
      Disturb();
      if (random_->Chance(0.3)) Advance(random_->Uniform(longest_step_ns));
      if (step % 100 == 0) wheel_->CheckInvariants();
    }
    timers_.clear();
  }

 private:
  // The first time at which the timer may, and must, have fired.
  static uint64_t FireTime(uint64_t deadline_ns) {
    return (deadline_ns + kTick - 1) / kTick * kTick;
  }

  void Forget(int i) {
    for (auto entry = model_.begin(); entry != model_.end(); ++entry) {
      if (entry->second == i) {
        model_.erase(entry);
        return;
      }
    }
  }

  // Schedules or cancels one timer at random.
  void Disturb() {
    const int i = static_cast<int>(random_->Uniform(kTimers));
    Forget(i);
    if (random_->Chance(0.3)) {
      wheel_->Cancel(&timers_[i]);
    } else {
      // Short and long waits alike, and sometimes one in the past.
      const uint64_t wait_ns = random_->Uniform(longest_wait_ns_) >> random_->Uniform(30);
      const uint64_t deadline_ns = random_->Chance(0.05) ? now_ns_ - wait_ns : now_ns_ + wait_ns;
      wheel_->Schedule(&timers_[i], deadline_ns);
      model_.emplace(FireTime(deadline_ns), i);
      if (advancing_) scheduled_inside_.insert(i);
    }
    ASSERT_EQ(timers_[i].armed(), IsKnown(i));
  }

  bool IsKnown(int i) const {
    return std::any_of(model_.begin(), model_.end(), [i](const auto& e) { return e.second == i; });
  }

  void OnFired(int i) {
    const auto entry =
        std::find_if(model_.begin(), model_.end(), [i](const auto& e) { return e.second == i; });
    ASSERT_NE(entry, model_.end()) << "fired without being armed";
    ASSERT_LE(entry->first, now_ns_) << "fired early";
    ASSERT_EQ(scheduled_inside_.count(i), 0u) << "fired in the Advance that scheduled it";
    model_.erase(entry);
    ++fired_;
    for (uint64_t n = random_->Uniform(3); n > 0; --n) Disturb();
  }

  void Advance(uint64_t step_ns) {
    now_ns_ += step_ns;
    fired_ = 0;
    scheduled_inside_.clear();
    advancing_ = true;
    ASSERT_EQ(wheel_->Advance(now_ns_), fired_);
    advancing_ = false;
    for (const auto& [fire_ns, i] : model_) {
      if (fire_ns <= now_ns_) {
        ASSERT_EQ(scheduled_inside_.count(i), 1u) << "did not fire";
      }
    }
    ASSERT_EQ(wheel_->size(), model_.size());
    if (model_.empty()) {
      ASSERT_EQ(wheel_->NextDeadlineNs(), kNever);
    } else {
      ASSERT_LE(wheel_->NextDeadlineNs(), model_.begin()->first);
    }
  }

  std::optional<Random> random_;
  std::optional<TimerWheel> wheel_;
  std::deque<TestTimer> timers_;
  std::multimap<uint64_t, int> model_;  // fire time -> timer
  uint64_t now_ns_ = 0;
  uint64_t longest_wait_ns_ = 0;
  bool advancing_ = false;
  std::set<int> scheduled_inside_;
  int fired_ = 0;
};

TEST_F(TimerWheelModelTest, AgreesWithItsModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Run(seed, 100 * kNsPerMs, kNsPerMs);                  // busy: small steps
  Run(seed + 1, 100 * kNsPerMs, 300 * kNsPerMs);        // every step passes all deadlines
  Run(seed + 2, 3600 * kNsPerSec, 30 * kNsPerSec);      // several levels at once
  Run(seed + 3, uint64_t{1} << 60, uint64_t{1} << 50);  // the high levels
}

}  // namespace
}  // namespace weft
