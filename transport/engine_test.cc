// What an engine promises, shown on a transport that does nothing but count.
#include "transport/engine.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/log.h"
#include "transport/devices/numa.h"

namespace weft {
namespace {

using Drive = EngineOptions::Drive;

class QuietTransport : public Transport {
 public:
  absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string&, const ListenOptions&,
                                                   Acceptor*) override {
    return absl::UnimplementedError("quiet");
  }
  absl::StatusOr<Connection*> Connect(const std::string&, const ConnectOptions&,
                                      ConnectionHandler*) override {
    return absl::UnimplementedError("quiet");
  }
  Exports& exports() override { std::abort(); }
  int Poll(int, uint64_t) override { return 0; }
  void FlushAll() override {}
  bool Arm() override { return true; }
};

std::unique_ptr<EngineCore> MakeEngine(const EngineOptions& options) {
  auto engine = EngineCore::Create(
      options, [](const EngineContext&) -> absl::StatusOr<std::unique_ptr<Transport>> {
        return std::make_unique<QuietTransport>();
      });
  EXPECT_TRUE(engine.ok()) << engine.status();
  return *std::move(engine);
}

EngineOptions Options(Drive drive, uint64_t spin_ns = 0) {
  EngineOptions options;
  options.drive = drive;
  options.spin_ns = spin_ns;
  return options;
}

class CountingTimer : public Timer {
 public:
  explicit CountingTimer(Function<void()> action = nullptr) : action_(std::move(action)) {}
  void OnTimer() override {
    ++fired;
    if (action_) action_();
  }
  int fired = 0;

 private:
  Function<void()> action_;
};

// Has the engine finish `waiter` from its inbox.
bool PostFinish(EngineCore& engine, Waiter& waiter) {
  return engine.Post([&engine, &waiter] { engine.Finish(waiter); });
}

// Makes turns until `waiter` is done, as who has the engine does: its own thread, a caller that
// waits, or an application's loop.
void RunEngine(EngineCore& engine, Drive drive, Waiter& waiter) {
  if (drive != Drive::kExternal) {
    EXPECT_TRUE(engine.Wait(waiter));
    return;
  }
  while (!waiter.done()) {
    engine.Poll();
    if (waiter.done() || !engine.Arm()) continue;
    pollfd sleep = {engine.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&sleep, 1, /*timeout=*/60'000), 1) << "asleep with work in the inbox";
  }
}

// How often this thread has gone to sleep.
long VoluntarySwitches() {
  rusage usage = {};
  EXPECT_EQ(getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_nvcsw;
}

uint64_t CountOf(const Engine& engine, const std::string& name) {
  for (const auto& [counted, value] : engine.counters().Snapshot()) {
    if (counted == name) return value;
  }
  ADD_FAILURE() << "no counter " << name;
  return 0;
}

class EveryDrive : public testing::TestWithParam<Drive> {};

TEST_P(EveryDrive, PostedTasksRunInOrderOnTheEngine) {
  const auto engine = MakeEngine(Options(GetParam()));
  std::vector<int> order;
  Waiter last;
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(engine->Post([&order, &engine, i] {
      EXPECT_TRUE(engine->OnEngine());
      EXPECT_TRUE(engine->InTurn());
      order.push_back(i);
    }));
  }
  ASSERT_TRUE(PostFinish(*engine, last));
  EXPECT_TRUE(engine->Wait(last));
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST_P(EveryDrive, AWaitEndsAtItsDeadline) {
  const auto engine = MakeEngine(Options(GetParam()));
  Waiter never;
  EXPECT_FALSE(engine->Wait(never, engine->clock().NowNs() + 2 * kNsPerMs));
}

// A lost wake-up would leave a waiter asleep for ever: with spin_ns = 0 every single post meets an
// engine that is about to sleep, sleeps, or wakes.
TEST_P(EveryDrive, NoWakeUpIsLostWhileTheEngineFallsAsleep) {
  constexpr int kThreads = 2;
  constexpr int kRounds = 3000;
  const auto engine = MakeEngine(Options(GetParam()));
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  Waiter all_done;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        Waiter waiter;
        ASSERT_TRUE(PostFinish(*engine, waiter));
        EXPECT_TRUE(engine->Wait(waiter));
      }
      if (running.fetch_sub(1) == 1) {
        ASSERT_TRUE(PostFinish(*engine, all_done));
      }
    });
  }
  RunEngine(*engine, GetParam(), all_done);
  for (std::thread& thread : threads) thread.join();
}

// Every end of a wait woke all that waited for the same engine: with 16 threads in blocking calls
// on one channel most of the time went into waking those whose replies had not come.
TEST_P(EveryDrive, TheEndOfOneWaitWakesNobodyElse) {
  constexpr int kRounds = 2000;
  const auto engine = MakeEngine(Options(GetParam()));
  const bool entered = GetParam() == Drive::kCaller && engine->Enter();  // nobody else is to drive
  Waiter last;
  Waiter all_done;
  std::atomic<bool> waits{false};
  long switches = -1;
  std::thread sleeper([&] {
    const long before = VoluntarySwitches();
    waits = true;
    EXPECT_TRUE(engine->Wait(last));
    switches = VoluntarySwitches() - before;
  });
  std::thread busy([&] {
    while (!waits) std::this_thread::yield();
    for (int i = 0; i < kRounds; ++i) {
      Waiter waiter;
      ASSERT_TRUE(PostFinish(*engine, waiter));
      EXPECT_TRUE(engine->Wait(waiter));
    }
    ASSERT_TRUE(PostFinish(*engine, last));
    ASSERT_TRUE(PostFinish(*engine, all_done));
  });
  RunEngine(*engine, GetParam(), all_done);
  if (entered) engine->Leave();
  sleeper.join();
  busy.join();
  EXPECT_LT(switches, kRounds / 10);
  // Each end at most one, the two last ones included, and a call to drive when the driver left.
  EXPECT_LE(CountOf(*engine, "engine.wakes"), kRounds + 3u);
}

TEST_P(EveryDrive, SeveralThreadsWaitForOneEnd) {
  for (int round = 0; round < 20; ++round) {
    const auto engine = MakeEngine(Options(GetParam()));
    Waiter end;
    std::atomic<int> waiting{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        ++waiting;
        // Whom the role is given to in between, this thread or another, is left open.
        EXPECT_TRUE(engine->Wait(end));
      });
    }
    std::thread finisher([&] {
      while (waiting < 3) std::this_thread::yield();
      ASSERT_TRUE(PostFinish(*engine, end));
    });
    EXPECT_TRUE(engine->Wait(end));
    finisher.join();
    for (std::thread& thread : threads) thread.join();
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryDrive,
                         testing::Values(Drive::kOwnThread, Drive::kCaller, Drive::kExternal),
                         [](const auto& drive) {
                           switch (drive.param) {
                             case Drive::kOwnThread:
                               return "OwnThread";
                             case Drive::kCaller:
                               return "Caller";
                             case Drive::kExternal:
                               return "External";
                           }
                           return "Unknown";
                         });

// One turn with a second of work, then looks of a microsecond that find nothing; and how long it
// was idle when the engine wanted to sleep.
class SlowTransport final : public QuietTransport {
 public:
  explicit SlowTransport(FakeClock* clock) : clock_(clock) {}

  int Poll(int, uint64_t) override {
    clock_->Advance(worked_ ? kNsPerUs : kNsPerSec);
    if (worked_) return 0;
    worked_ = true;
    work_end_ns_ = clock_->NowNs();
    return 1;
  }

  bool Arm() override {
    if (idle_ns == 0) idle_ns = clock_->NowNs() - work_end_ns_;
    return false;  // nobody would move the clock on
  }

  uint64_t idle_ns = 0;

 private:
  FakeClock* const clock_;
  bool worked_ = false;
  uint64_t work_end_ns_ = 0;
};

// A server of 16 calls at a time was 70 us in each turn with them, and went to sleep right after
// it: its last traffic, as the beginning of that turn, was more than 50 us ago. So did its client,
// and each call waited for two wake-ups: less than half of the rate.
TEST(Engine, AfterALongTurnItSpinsAsLongAsAfterAShortOne) {
  FakeClock clock;
  EngineOptions options = Options(Drive::kCaller, /*spin_ns=*/kNsPerMs);
  options.clock = &clock;
  SlowTransport* transport = nullptr;
  const auto engine = EngineCore::Create(
      options, [&](const EngineContext&) -> absl::StatusOr<std::unique_ptr<Transport>> {
        auto made = std::make_unique<SlowTransport>(&clock);
        transport = made.get();
        return made;
      });
  ASSERT_TRUE(engine.ok()) << engine.status();
  Waiter never;
  EXPECT_FALSE((*engine)->Wait(never, clock.NowNs() + 2 * kNsPerSec));
  EXPECT_GE(transport->idle_ns, kNsPerMs);
  EXPECT_LT(transport->idle_ns, 2 * kNsPerMs);
}

// Counts the looks at it between two attempts to sleep, each of which takes a millisecond.
class WokenTransport final : public QuietTransport {
 public:
  explicit WokenTransport(FakeClock* clock) : clock_(clock) {}

  int Poll(int, uint64_t) override {
    ++looks_;
    return 0;
  }
  bool Arm() override {
    most_looks = std::max(most_looks, std::exchange(looks_, 0));
    clock_->Advance(kNsPerMs);
    return false;  // nobody would move the clock on
  }

  int most_looks = 0;

 private:
  FakeClock* const clock_;
  int looks_ = 0;
};

// Each heartbeat of each connection woke an idle engine, which then looked at its transport eight
// times, over tcp a system call each: half of what an idle server with a thousand connections did.
TEST(Engine, OneThatHasSpunLooksOnceEachTimeThatItIsWoken) {
  FakeClock clock;
  EngineOptions options = Options(Drive::kCaller, /*spin_ns=*/0);
  options.clock = &clock;
  WokenTransport* transport = nullptr;
  const auto engine = EngineCore::Create(
      options, [&](const EngineContext&) -> absl::StatusOr<std::unique_ptr<Transport>> {
        auto made = std::make_unique<WokenTransport>(&clock);
        transport = made.get();
        return made;
      });
  ASSERT_TRUE(engine.ok()) << engine.status();
  Waiter never;
  EXPECT_FALSE((*engine)->Wait(never, clock.NowNs() + 20 * kNsPerMs));
  EXPECT_EQ(transport->most_looks, 1);
}

// Counts the turns that look at it, and can have a descriptor that is ready.
class CountedTransport final : public QuietTransport {
 public:
  int Poll(int, uint64_t) override { return ++looks, 0; }

  int looks = 0;
  Poller* poller = nullptr;
};

// An application's loop is woken for much that is not the engine's. Each time the engine looked at
// all that it has, over tcp three system calls and more; beside dqlite's loop that was a quarter of
// an operation.
class ArmedEngine : public testing::Test {
 protected:
  ArmedEngine() {
    EngineOptions options = Options(Drive::kExternal);
    options.clock = &clock_;
    auto engine = EngineCore::Create(
        options, [&](const EngineContext& context) -> absl::StatusOr<std::unique_ptr<Transport>> {
          auto made = std::make_unique<CountedTransport>();
          made->poller = context.poller;
          transport_ = made.get();
          return made;
        });
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    engine_->Poll();
    EXPECT_TRUE(engine_->Arm());
    transport_->looks = 0;
  }
  bool IsReadable() const {
    pollfd look = {engine_->fd(), POLLIN, 0};
    return poll(&look, 1, /*timeout=*/0) == 1;
  }
  // Whether the next Poll() is a turn.
  bool PollIsATurn() {
    engine_->Poll();
    return std::exchange(transport_->looks, 0) > 0;
  }

  FakeClock clock_;
  CountedTransport* transport_ = nullptr;
  std::unique_ptr<EngineCore> engine_;
};

TEST_F(ArmedEngine, IsNotLookedAtAsLongAsNothingHasCome) {
  EXPECT_FALSE(PollIsATurn());
  EXPECT_TRUE(engine_->Arm()) << "it still is";
  EXPECT_FALSE(PollIsATurn());
}

TEST_F(ArmedEngine, TakesATurnForATask) {
  int runs = 0;
  ASSERT_TRUE(engine_->Post([&runs] { ++runs; }));
  EXPECT_FALSE(engine_->Arm()) << "it would sleep with work in its inbox";
  EXPECT_TRUE(PollIsATurn());
  EXPECT_EQ(runs, 1);
}

TEST_F(ArmedEngine, TakesATurnForATaskThatCameWhileItWasArmed) {
  int runs = 0;
  ASSERT_TRUE(engine_->Post([&runs] { ++runs; }));
  EXPECT_TRUE(PollIsATurn());
  EXPECT_EQ(runs, 1);
}

// A task that the loop posted to its own engine rang: a system call, and two more to hear and take
// it, for a turn that the loop makes anyway before it sleeps.
TEST_F(ArmedEngine, IsRungByOtherThreadsAndNotByItsOwn) {
  ASSERT_TRUE(engine_->Post([] {}));
  EXPECT_FALSE(IsReadable());
  EXPECT_TRUE(PollIsATurn());
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(engine_->Arm());
    std::thread([this] { ASSERT_TRUE(engine_->Post([] {})); }).join();
    EXPECT_TRUE(IsReadable());
    EXPECT_TRUE(PollIsATurn());
    EXPECT_FALSE(IsReadable()) << "what rang has been taken";
  }
}

// A loop with two engines makes their turns one behind the other: what the second posts to the
// first comes behind the first one's turn.
TEST_F(ArmedEngine, IsRungInTheTurnOfAnotherEngineOfItsThread) {
  const std::unique_ptr<EngineCore> second = MakeEngine(Options(Drive::kExternal));
  ASSERT_TRUE(second->Post([this] { ASSERT_TRUE(engine_->Post([] {})); }));
  EXPECT_EQ(second->Poll(), 1);
  EXPECT_TRUE(IsReadable());
  EXPECT_TRUE(PollIsATurn());
}

// What it has sent leaves in the next turn.
TEST_F(ArmedEngine, TakesATurnWhenItsOwnerHasUsedIt) {
  ASSERT_TRUE(engine_->Enter());
  engine_->Leave();
  EXPECT_TRUE(PollIsATurn());
  EXPECT_TRUE(engine_->Arm());
  EXPECT_FALSE(PollIsATurn());
}

// In this order what it had sent waited for the next timer.
TEST_F(ArmedEngine, DoesNotSleepBetweenAUseAndItsTurn) {
  ASSERT_TRUE(engine_->Enter());
  engine_->Leave();
  EXPECT_FALSE(engine_->Arm());
  EXPECT_TRUE(PollIsATurn());
  EXPECT_TRUE(engine_->Arm());
}

TEST_F(ArmedEngine, TakesATurnForATimerThatIsDue) {
  CountingTimer timer;
  ASSERT_TRUE(engine_->Enter());
  engine_->timers().Schedule(&timer, clock_.NowNs() + kNsPerMs);
  engine_->Leave();
  EXPECT_TRUE(PollIsATurn());
  ASSERT_TRUE(engine_->Arm());
  EXPECT_FALSE(PollIsATurn());
  clock_.Advance(2 * kNsPerMs);
  EXPECT_TRUE(PollIsATurn());
  EXPECT_EQ(timer.fired, 1);
}

TEST_F(ArmedEngine, TakesATurnForADescriptorThatIsReady) {
  const int ready = eventfd(0, EFD_CLOEXEC);
  ASSERT_TRUE(transport_->poller->Add(ready, POLLIN, /*handler=*/nullptr).ok());
  EXPECT_FALSE(PollIsATurn());
  const uint64_t one = 1;
  ASSERT_EQ(write(ready, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  EXPECT_TRUE(PollIsATurn());
  transport_->poller->Remove(ready);
  close(ready);
}

// Sees its descriptor before or after its timer.
class ReadyTransport final : public QuietTransport, public PollHandler {
 public:
  void OnReady(uint32_t) override { ++ready; }
  int ready = 0;
};

// A machine stood still for seconds in the middle of a handshake. The peer's answer was in the
// socket, but the deadline was looked at first, and the connection given up.
TEST(Engine, AfterAPauseWhatHasComeIsSeenBeforeWhatIsLate) {
  FakeClock clock;
  EngineOptions options = Options(Drive::kCaller);
  options.clock = &clock;
  ReadyTransport* transport = nullptr;
  Poller* poller = nullptr;
  const auto engine = EngineCore::Create(
      options, [&](const EngineContext& context) -> absl::StatusOr<std::unique_ptr<Transport>> {
        auto made = std::make_unique<ReadyTransport>();
        transport = made.get();
        poller = context.poller;
        return made;
      });
  ASSERT_TRUE(engine.ok()) << engine.status();
  (*engine)->Poll();
  const int readable = eventfd(1, EFD_CLOEXEC);
  ASSERT_TRUE(poller->Add(readable, POLLIN, transport).ok());
  int ready_before = -1;
  CountingTimer deadline([&] { ready_before = transport->ready; });
  (*engine)->timers().Schedule(&deadline, clock.NowNs() + kNsPerSec);
  clock.Advance(5 * kNsPerSec);
  (*engine)->Poll();
  EXPECT_EQ(deadline.fired, 1);
  EXPECT_EQ(ready_before, 1);
  poller->Remove(readable);
  close(readable);
}

TEST(Engine, TimersFireWhileSomebodyWaits) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  Waiter waiter;
  CountingTimer timer([&] { engine->Finish(waiter); });
  engine->timers().Schedule(&timer, engine->clock().NowNs() + kNsPerMs);
  EXPECT_TRUE(engine->Wait(waiter));
  EXPECT_EQ(timer.fired, 1);
}

TEST(Engine, ACallersEngineStandsStillWhileNobodyWaits) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  Waiter waiter;
  ASSERT_TRUE(PostFinish(*engine, waiter));
  EXPECT_FALSE(waiter.done());
  EXPECT_TRUE(engine->Wait(waiter));
}

TEST(Engine, RunUntilMakesTurnsUntilItsConditionHolds) {
  for (const Drive drive : {Drive::kCaller, Drive::kExternal}) {
    const auto engine = MakeEngine(Options(drive));
    int tasks = 0;  // written by tasks, read by the condition: both while this thread drives
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(engine->Post([&tasks] { ++tasks; }));
    EXPECT_TRUE(engine->RunUntil([&] {
      EXPECT_TRUE(engine->OnEngine());
      EXPECT_FALSE(engine->InTurn());
      return tasks == 3;
    }));
    EXPECT_FALSE(engine->OnEngine());
  }
}

TEST(Engine, RunUntilMakesNoTurnWhereItsConditionHoldsAlready) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  int tasks = 0;
  ASSERT_TRUE(engine->Post([&tasks] { ++tasks; }));
  EXPECT_TRUE(engine->RunUntil([] { return true; }));
  EXPECT_EQ(tasks, 0);
}

TEST(Engine, RunUntilEndsAtItsDeadline) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  const uint64_t deadline_ns = engine->clock().NowNs() + 5 * kNsPerMs;
  EXPECT_FALSE(engine->RunUntil([] { return false; }, deadline_ns));
  EXPECT_GE(engine->clock().NowNs(), deadline_ns);
  int looks = 0;
  EXPECT_TRUE(engine->RunUntil([&] { return ++looks == 2; }, deadline_ns)) << "one turn at least";
}

TEST(Engine, RunUntilIsForThoseWhoMayDrive) {
  const auto not_called = [] {
    ADD_FAILURE();
    return true;
  };
  const auto own_thread = MakeEngine(Options(Drive::kOwnThread));
  EXPECT_FALSE(own_thread->RunUntil(not_called));
  const auto external = MakeEngine(Options(Drive::kExternal));
  std::thread([&] { EXPECT_FALSE(external->RunUntil(not_called)); }).join();
}

TEST(Engine, RunUntilWaitsForWhoDrives) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  ASSERT_TRUE(engine->Enter());
  std::thread late([&] {
    EXPECT_FALSE(engine->RunUntil([] { return true; }, engine->clock().NowNs() + kNsPerMs));
  });
  late.join();
  ASSERT_TRUE(engine->Post([] {}));  // for the turn between two looks
  int runs = 0;
  std::thread follower([&] {
    EXPECT_TRUE(engine->RunUntil([&] { return ++runs > 1; }));
    EXPECT_FALSE(engine->OnEngine());
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(runs, 0);  // while this thread drives, nobody else looks
  engine->Leave();
  follower.join();
  EXPECT_EQ(runs, 2);
}

TEST(Engine, WhatNobodySleepsForEndsWithoutAWakeUp) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  for (int i = 0; i < 100; ++i) {
    Waiter waiter;
    ASSERT_TRUE(PostFinish(*engine, waiter));
    EXPECT_TRUE(engine->Wait(waiter));
    Waiter driven;
    ASSERT_TRUE(engine->Enter());
    ASSERT_TRUE(PostFinish(*engine, driven));
    EXPECT_TRUE(engine->Drive(driven));
    engine->Leave();
  }
  EXPECT_EQ(CountOf(*engine, "engine.wakes"), 0u);
}

TEST(Engine, WhoFollowsWaitsByTheEnginesClock) {
  FakeClock clock;
  EngineOptions options = Options(Drive::kCaller);
  options.clock = &clock;
  const auto engine = MakeEngine(options);
  ASSERT_TRUE(engine->Enter());
  std::atomic<bool> moved{false};
  std::atomic<bool> waits{false};
  std::thread follower([&] {
    Waiter never;
    const uint64_t deadline_ns = clock.NowNs() + kNsPerMs;  // before the clock is moved
    waits = true;
    EXPECT_FALSE(engine->Wait(never, deadline_ns));
    EXPECT_TRUE(moved);
  });
  while (!waits) std::this_thread::yield();
  moved = true;
  clock.Advance(kNsPerMs);
  follower.join();
  engine->Leave();
}

// Who holds the engine makes no turn itself: whatever ends, followers have brought about.
TEST(Engine, AFollowerTakesOverWhenTheDriverLeaves) {
  for (const uint64_t spin_ns : {uint64_t{0}, 20 * kNsPerUs}) {
    for (int round = 0; round < 40; ++round) {
      const auto engine = MakeEngine(Options(Drive::kCaller, spin_ns));
      ASSERT_TRUE(engine->Enter());
      std::atomic<int> waiting{0};
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
          Waiter waiter;
          ASSERT_TRUE(PostFinish(*engine, waiter));
          ++waiting;
          EXPECT_TRUE(engine->Wait(waiter));
        });
      }
      while (waiting < 4) std::this_thread::yield();
      engine->Leave();
      for (std::thread& thread : threads) thread.join();
    }
  }
}

// A follower that is called to drive may have nothing to drive for any more: its own wait has ended
// while it was called. Then the other one is to drive, or it would sleep for ever.
TEST(Engine, WhoIsCalledAfterItsEndPassesTheCallOn) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  for (int round = 0; round < 100; ++round) {
    ASSERT_TRUE(engine->Enter());
    Waiter first;
    Waiter second;
    std::atomic<int> waiting{0};
    const auto wait = [&](Waiter& waiter) {
      ++waiting;
      EXPECT_TRUE(engine->Wait(waiter));
    };
    std::thread stays([&] { wait(second); });
    while (waiting < 1) std::this_thread::yield();
    std::thread ends([&] { wait(first); });
    while (waiting < 2) std::this_thread::yield();
    ASSERT_TRUE(PostFinish(*engine, first));
    engine->Poll();   // wakes the one
    engine->Leave();  // and calls one of them
    ASSERT_TRUE(PostFinish(*engine, second));
    ends.join();
    stays.join();
  }
}

// The role is given up and taken over in every state that a follower can be in: before it sleeps,
// asleep, woken by its end, by its deadline, or by a call. A role that is free while followers
// sleep would leave those without a deadline asleep for ever.
TEST(Engine, NoFollowerSleepsWhileTheRoleIsFree) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 400;
  for (const uint64_t spin_ns : {uint64_t{0}, 5 * kNsPerUs}) {
    const auto engine = MakeEngine(Options(Drive::kCaller, spin_ns));
    const uint32_t seed = std::random_device()();
    SCOPED_TRACE(seed);
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(seed + t);
        const auto deadline_ns = [&] { return engine->clock().NowNs() + random() % 200'000; };
        for (int i = 0; i < kRounds; ++i) {
          // Outlives a wait that its deadline has ended.
          const auto waiter = std::make_shared<Waiter>();
          switch (random() % 4) {
            case 0:
              engine->Wait(*waiter, deadline_ns());
              break;
            case 1:
              engine->RunUntil([&] { return random() % 2 == 0; }, deadline_ns());
              break;
            default: {
              ASSERT_TRUE(engine->Post([&engine, waiter] { engine->Finish(*waiter); }));
              if (random() % 2 == 0 && engine->Wait(*waiter, deadline_ns())) break;
              EXPECT_TRUE(engine->Wait(*waiter));
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(engine->Enter()) << "somebody has kept the role";
    engine->Poll();
    engine->Leave();
  }
}

TEST(Engine, AnExternalEngineBelongsToItsCreatorOrWhoAdoptsIt) {
  const auto engine = MakeEngine(Options(Drive::kExternal));
  ASSERT_TRUE(engine->Post([] {}));
  std::thread([&] {
    EXPECT_FALSE(engine->Enter());
    EXPECT_EQ(engine->Poll(), 0);
    engine->Adopt();
    EXPECT_GE(engine->Poll(), 1);
  }).join();
  EXPECT_FALSE(engine->Enter());
}

// A turn ran inside another one: what the outer was about to look at was gone.
TEST(Engine, PollInACallbackDoesNothing) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  int ran = 0;
  int inner_work = -1;
  ASSERT_TRUE(engine->Post([&] {
    ASSERT_TRUE(engine->Post([&ran] { ++ran; }));
    inner_work = engine->Poll();
    EXPECT_EQ(ran, 0);
    EXPECT_TRUE(engine->InTurn()) << "the turn goes on";
  }));
  while (ran == 0) engine->Poll();
  EXPECT_EQ(inner_work, 0);
}

TEST(Engine, EnteringNestsAndLeavesOnce) {
  const auto engine = MakeEngine(Options(Drive::kCaller));
  ASSERT_TRUE(engine->Enter());
  ASSERT_TRUE(engine->Enter());
  engine->Leave();
  EXPECT_TRUE(engine->OnEngine());
  engine->Leave();
  EXPECT_FALSE(engine->OnEngine());
}

TEST(Engine, AFullInboxRefusesInsteadOfGrowing) {
  EngineOptions options = Options(Drive::kCaller);
  options.inbox_slots = 16;
  const auto engine = MakeEngine(options);
  int accepted = 0;
  while (accepted < 1000 && engine->Post([] {})) ++accepted;
  EXPECT_EQ(accepted, 16);
}

// Where the kernel says nothing of nodes, engines have none.
TEST(Engine, ItsNodeIsThatOfItsProcessorUnlessItIsToldAnother) {
  EXPECT_EQ(MakeEngine(Options(Drive::kCaller))->numa_node(), -1);
  EngineOptions options = Options(Drive::kOwnThread);
  options.cpu = 0;
  const int node = NodeOfProcessor(kSysfs, 0);
  EXPECT_EQ(MakeEngine(options)->numa_node(), node);
  if (node < 0) return;
  options.numa_node = node;
  EXPECT_EQ(MakeEngine(options)->numa_node(), node);
  options.cpu = -1;
  for (const Drive drive : {Drive::kOwnThread, Drive::kCaller, Drive::kExternal}) {
    options.drive = drive;
    int told = -1;
    const auto engine = EngineCore::Create(
        options, [&](const EngineContext& context) -> absl::StatusOr<std::unique_ptr<Transport>> {
          told = context.numa_node;
          return std::make_unique<QuietTransport>();
        });
    ASSERT_TRUE(engine.ok()) << engine.status();
    EXPECT_EQ(told, node);
  }
}

// What the kernel was asked of the memory of this thread, a mode of <linux/mempolicy.h>, and of
// which of the first 64 nodes. -1: it does not say.
std::pair<int, uint64_t> MemoryPolicy() {
  // Room for as many nodes as a kernel may be built for.
  unsigned long nodes[1024 / (8 * sizeof(unsigned long))] = {};
  int mode = -1;
  const long failed = syscall(SYS_get_mempolicy, &mode, nodes, 8 * sizeof(nodes), nullptr, 0UL);
  return failed == 0 ? std::make_pair(mode, uint64_t{nodes[0]}) : std::make_pair(-1, uint64_t{0});
}

// The thread that opens an engine of another node touched first what was made for that: its
// doorbell, its inbox, what its transport begins with.
TEST(Engine, WhatIsMadeForItIsAskedForOnItsNode) {
  const auto before = MemoryPolicy();
  EngineOptions options = Options(Drive::kOwnThread);
  options.numa_node = NodeOfProcessor(kSysfs, AllowedProcessors().front());
  if (options.numa_node < 0 || options.numa_node >= 64 || before.first != MPOL_DEFAULT) {
    GTEST_SKIP() << "the kernel says nothing of nodes, or somebody has asked for some";
  }
  if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, nullptr, 0UL) != 0) {
    GTEST_SKIP() << "this process may not ask for nodes, as in many containers";
  }
  const auto policy_while_made = [&options] {
    std::pair<int, uint64_t> policy;
    const auto engine = EngineCore::Create(
        options, [&](const EngineContext&) -> absl::StatusOr<std::unique_ptr<Transport>> {
          policy = MemoryPolicy();
          return std::make_unique<QuietTransport>();
        });
    EXPECT_TRUE(engine.ok()) << engine.status();
    Waiter waiter;
    std::pair<int, uint64_t> of_its_thread;
    EXPECT_TRUE((*engine)->Post([&] {
      of_its_thread = MemoryPolicy();
      (*engine)->Finish(waiter);
    }));
    EXPECT_TRUE((*engine)->Wait(waiter));
    EXPECT_EQ(of_its_thread.first, MPOL_DEFAULT) << "what a handler allocates lies where it runs";
    return policy;
  };
  EXPECT_EQ(policy_while_made(),
            std::make_pair(int{MPOL_PREFERRED}, uint64_t{1} << options.numa_node));
  EXPECT_EQ(MemoryPolicy(), before);
  options.numa_node = -1;
  EXPECT_EQ(policy_while_made(), before);
}

// A program that was started on some processors (taskset) had its engines on all of the node.
TEST(Engine, ItsNodeLeavesItsThreadOnTheProcessorsThatItMayUse) {
  const std::vector<int> before = AllowedProcessors();
  ASSERT_FALSE(before.empty());
  EngineOptions options = Options(Drive::kOwnThread);
  options.numa_node = NodeOfProcessor(kSysfs, before.back());
  if (options.numa_node < 0) GTEST_SKIP() << "the kernel says nothing of nodes";
  std::vector<int> of_engine;
  std::thread starter([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(before.back()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const auto engine = MakeEngine(options);
    Waiter waiter;
    ASSERT_TRUE(engine->Post([&] {
      of_engine = AllowedProcessors();
      engine->Finish(waiter);
    }));
    EXPECT_TRUE(engine->Wait(waiter));
  });
  starter.join();
  EXPECT_EQ(of_engine, std::vector<int>{before.back()});
}

TEST(Engine, ANodeThatIsNotThereIsRefused) {
  EngineOptions options = Options(Drive::kOwnThread);
  const auto refusal = [&] {
    return EngineCore::Create(options,
                              [](const EngineContext&) {
                                return absl::StatusOr<std::unique_ptr<Transport>>(
                                    std::make_unique<QuietTransport>());
                              })
        .status();
  };
  options.numa_node = 4096;
  EXPECT_TRUE(absl::IsInvalidArgument(refusal())) << refusal();
  EXPECT_NE(refusal().message().find("EngineOptions::numa_node is 4096"), absl::string_view::npos);
  options.numa_node = NodeOfProcessor(kSysfs, 0);
  if (options.numa_node < 0) return;
  options.cpu = CPU_SETSIZE - 1;  // of no node, on a machine with fewer processors
  if (NodeOfProcessor(kSysfs, options.cpu) == options.numa_node) return;
  EXPECT_TRUE(absl::IsInvalidArgument(refusal())) << refusal();
}

// A handler on an executor finished the last call of a server by posting to its engine. The engine
// ran that task, the server saw that all was done and destroyed the engine, and the handler's
// thread rang a doorbell that was gone: Post() had not returned yet.
TEST(Engine, APosterMayStillBeReturningWhenTheEngineIsDestroyed) {
  for (int round = 0; round < 200; ++round) {
    auto engine = MakeEngine(Options(Drive::kOwnThread));
    Waiter waiter;
    std::thread poster([&engine = *engine, &waiter] { ASSERT_TRUE(PostFinish(engine, waiter)); });
    EXPECT_TRUE(engine->Wait(waiter));
    engine.reset();
    poster.join();
  }
}

TEST(Engine, BadOptionsAreNamed) {
  EngineOptions options;
  options.inbox_slots = 1000;
  const auto engine = EngineCore::Create(options, nullptr);
  EXPECT_EQ(engine.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(engine.status().message().find("1000"), absl::string_view::npos);
}

// Post() once took the task also when it had no room for it: who tried again posted nothing.
TEST(EngineTest, ATaskThatFindsNoRoomStaysItsPosters) {
  EngineOptions options = Options(Drive::kExternal);
  options.inbox_slots = 16;
  const auto engine = MakeEngine(options);
  int ran = 0;
  Function<void()> task;
  for (bool posted = true; posted;) {
    task = [&ran] { ++ran; };
    posted = engine->Post(std::move(task));
  }
  ASSERT_TRUE(static_cast<bool>(task));
  while (engine->Poll() > 0) {
  }
  EXPECT_EQ(ran, 16);
  EXPECT_TRUE(engine->Post(std::move(task)));
  engine->Poll();
  EXPECT_EQ(ran, 17);
}

// --- log ----------------------------------------------------------------------------------------

struct Heard {
  explicit Heard(std::string prefix) : prefix(std::move(prefix)) {}
  LogSink Sink() {
    return [this](const LogRecord& record) { lines += prefix + std::string(record.text) + " "; };
  }
  const std::string prefix;
  std::string lines;
};

// One that says something at its end.
class LastWords final : public QuietTransport {
 public:
  ~LastWords() override { WEFT_LOG(kInfo, "end"); }
};

TEST(EngineTest, WhatIsSaidInItsTurnsGoesToItsLog) {
  Heard of_process("process:");
  Heard of_first("first:");
  Heard of_second("second:");
  SetLogSink(of_process.Sink());
  Log first_log(of_first.Sink());
  Log second_log(of_second.Sink());
  EngineOptions options = Options(Drive::kCaller);
  options.log = &first_log;
  auto first = *EngineCore::Create(
      options, [](const EngineContext&) -> absl::StatusOr<std::unique_ptr<Transport>> {
        return std::make_unique<LastWords>();
      });
  options.log = &second_log;
  const std::unique_ptr<EngineCore> second = MakeEngine(options);
  const std::unique_ptr<EngineCore> third = MakeEngine(Options(Drive::kCaller));
  // Turns nest where a callback of one engine waits for another one.
  ASSERT_TRUE(third->Post([] { WEFT_LOG(kInfo, "c"); }));
  ASSERT_TRUE(second->Post([] { WEFT_LOG(kInfo, "b"); }));
  ASSERT_TRUE(first->Post([&] {
    WEFT_LOG(kInfo, "a1");
    second->Poll();
    third->Poll();
    WEFT_LOG(kInfo, "a2");
  }));
  first->Poll();
  WEFT_LOG(kInfo, "d");
  first.reset();
  SetLogSink(nullptr);
  EXPECT_EQ(of_first.lines, "first:a1 first:a2 first:end ");
  EXPECT_EQ(of_second.lines, "second:b ");
  EXPECT_EQ(of_process.lines, "process:c process:d ");
}

}  // namespace
}  // namespace weft
