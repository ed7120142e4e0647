// Alarms, and coroutines that sleep: never early, once, and not after a cancel, on every kind of
// engine and from every thread.
#include "rpc/operation/alarm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "rpc/coroutine/await.h"
#include "rpc/coroutine/task.h"
#include "rpc/testing/two_threads.h"
#include "transport/network.h"
#include "transport/sim/sim_network.h"

namespace weft::test {
namespace {

constexpr uint64_t kTickNs = 66'000;  // what it may be late

class AlarmTest : public testing::Test {
 protected:
  AlarmTest() : network_(/*seed=*/1), engine_(network_.Node("node")), alarm_(engine_) {}

  uint64_t NowNs() { return network_.clock().NowNs(); }

  SimNetwork network_;
  Engine& engine_;
  Alarm alarm_;
  int calls_ = 0;
};

TEST_F(AlarmTest, CallsBackOnceAndNotEarly) {
  const uint64_t start_ns = NowNs();
  uint64_t called_ns = 0;
  alarm_.Set(5000, [&] {
    ++calls_;
    called_ns = NowNs();
    EXPECT_TRUE(engine_.OnEngine());
  });
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 1);
  EXPECT_GE(called_ns, start_ns + 5'000'000);
  EXPECT_LE(called_ns, start_ns + 5'000'000 + kTickNs);
}

TEST_F(AlarmTest, ATimeOfNoneIsSoonAndNotInside) {
  alarm_.Set(0, [&] { ++calls_; });
  EXPECT_EQ(calls_, 0);
  network_.RunFor(kNsPerMs);
  EXPECT_EQ(calls_, 1);
}

TEST_F(AlarmTest, ATimeThatNeverComesIsAllowed) {
  alarm_.Set(~uint64_t{0}, [&] { ++calls_; });
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 0);
  EXPECT_TRUE(alarm_.Cancel());
}

TEST_F(AlarmTest, WhatWasCancelledDoesNotRun) {
  EXPECT_FALSE(alarm_.Cancel()) << "nothing was set";
  auto held = std::make_shared<int>(1);
  alarm_.Set(5000, [this, held] { ++calls_; });
  EXPECT_TRUE(alarm_.Cancel());
  EXPECT_EQ(held.use_count(), 1) << "and is gone";
  EXPECT_FALSE(alarm_.Cancel());
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 0);
}

TEST_F(AlarmTest, SettingItAgainForgetsWhatWasSetBefore) {
  alarm_.Set(5000, [&] { calls_ += 100; });
  alarm_.Set(20'000, [&] { ++calls_; });
  network_.RunFor(10 * kNsPerMs);
  EXPECT_EQ(calls_, 0);
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 1);
}

TEST_F(AlarmTest, ItsCallbackMaySetItAgain) {
  std::function<void()> beat = [&] {
    if (++calls_ < 10) alarm_.Set(1000, beat);
  };
  const uint64_t start_ns = NowNs();
  alarm_.Set(1000, beat);
  network_.RunUntil([&] { return calls_ == 10; }, kNsPerSec);
  EXPECT_GE(NowNs(), start_ns + 10 * kNsPerMs);
}

TEST_F(AlarmTest, ItsCallbackMayDestroyIt) {
  std::optional<Alarm> own;
  own.emplace(engine_);
  own->Set(1000, [&] {
    own.reset();
    ++calls_;
  });
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 1);
  EXPECT_FALSE(own.has_value());
}

TEST_F(AlarmTest, DestroyingItCancelsIt) {
  {
    Alarm gone(engine_);
    gone.Set(1000, [&] { ++calls_; });
  }
  network_.RunFor(kNsPerSec);
  EXPECT_EQ(calls_, 0);
}

// --- sleeping ------------------------------------------------------------------------------------

Task<int> SleepOften(Engine& engine, int times) {
  for (int i = 0; i < times; ++i) co_await Sleep(engine, 1000);
  co_return times;
}

TEST_F(AlarmTest, ACoroutineGoesOnWhenItHasSlept) {
  const uint64_t start_ns = NowNs();
  EXPECT_EQ(Wait(engine_, SleepOften(engine_, 20)), 20);
  EXPECT_GE(NowNs(), start_ns + 20 * kNsPerMs);
  EXPECT_LE(NowNs(), start_ns + 20 * (kNsPerMs + kTickNs) + kNsPerMs);
}

TEST_F(AlarmTest, ManyCoroutinesSleepAtOnce) {
  std::vector<Task<int>> tasks;
  for (int i = 0; i < 100; ++i) tasks.push_back(SleepOften(engine_, 3));
  const uint64_t start_ns = NowNs();
  EXPECT_EQ(Wait(engine_, WhenAll(std::move(tasks))).size(), 100u);
  EXPECT_LE(NowNs(), start_ns + 5 * kNsPerMs);
}

// --- engines with threads ------------------------------------------------------------------------

TEST(AlarmThreadsTest, AnyThreadSetsAndCancels) {
  auto engine = *OpenNetworkEngine({});
  std::atomic<int> called{0};
  int wanted = 0;
  for (int i = 0; i < 200; ++i) {
    Alarm alarm(*engine);
    alarm.Set(i % 5 * 20, [&] { ++called; });
    if (!alarm.Cancel()) ++wanted;  // it has run, and has returned
  }
  EXPECT_EQ(called, wanted);
}

TEST(AlarmThreadsTest, WhoWaitsDrivesIt) {
  auto engine = *OpenNetworkEngine({.drive = EngineOptions::Drive::kCaller});
  bool called = false;
  Alarm alarm(*engine);
  alarm.Set(100, [&] { called = true; });
  EXPECT_TRUE(engine->RunUntil([&] { return called; }));
}

Task<int> SleepOn(Engine& engine, Executor& executor) {
  co_await ResumeOn(executor);

  for (int i = 0; i < 50; ++i) co_await Sleep(engine, 10);
  co_return engine.OnEngine() ? 1 : 2;
}

TEST(AlarmThreadsTest, ACoroutineOfAnExecutorGoesOnThere) {
  auto engine = *OpenNetworkEngine({});
  TwoThreads executor;
  EXPECT_EQ(Wait(*engine, SleepOn(*engine, executor)), 2);
}

// Keeps what it is to run, until the test has another thread run it, to its end.
class RunByHand final : public Executor {
 public:
  bool Run(Function<void()> task) override {
    tasks_.push_back(std::move(task));
    return true;
  }
  bool has_task() const { return !tasks_.empty(); }
  void RunOneElsewhere() {
    std::thread([task = std::move(tasks_.front())]() mutable { task(); }).join();
    tasks_.erase(tasks_.begin());
  }

 private:
  std::vector<Function<void()>> tasks_;
};

// A sleep was an alarm, which another thread than the engine's sets and takes back by waiting for a
// turn of the engine: each sleep of a coroutine held up a thread of its executor for two turns, and
// for ever if nobody drove.
TEST(AlarmThreadsTest, ASleepHoldsUpNoThreadOfItsExecutor) {
  auto engine = *OpenNetworkEngine({.drive = EngineOptions::Drive::kExternal});
  RunByHand executor;
  int steps = 0;
  const auto sleep = [&]() -> Task<> {
    co_await ResumeOn(executor);
    ++steps;
    co_await Sleep(*engine, 10);
    ++steps;
  };
  Start(sleep(), [&] { ++steps; });
  executor.RunOneElsewhere();  // nobody drives meanwhile
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(engine->RunUntil([&] { return executor.has_task(); }));
  executor.RunOneElsewhere();  // the same, as what has slept goes
  EXPECT_EQ(steps, 3);
}

}  // namespace
}  // namespace weft::test
