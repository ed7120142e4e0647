// What is brought is done in line and not by who brings it.
#include "core/side_thread.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <vector>

#include "core/process_wide.h"

namespace weft {
namespace {

// Its thread may outlive the test.
SideThread& Side() {
  static constinit ProcessWide<SideThread> side;
  return side.Get();
}

void AwaitIdle() {
  while (Side().waiting() > 0) std::this_thread::yield();
}

// What `run` returns when it is run there.
template <class Run>
auto ResultOf(Run run) {
  std::promise<decltype(run())> promise;
  auto result = promise.get_future();
  Side().Bring([&] { promise.set_value(run()); });
  return result.get();
}

TEST(SideThread, TasksAreDoneInLineByOneOtherThread) {
  AwaitIdle();
  std::vector<int> done;
  std::promise<void> go, over;
  std::thread::id first_thread, last_thread;
  Side().Bring([&] {
    go.get_future().wait();
    first_thread = std::this_thread::get_id();
  });
  for (int i = 0; i < 100; ++i) Side().Bring([&done, i] { done.push_back(i); });
  Side().Bring([&] {
    last_thread = std::this_thread::get_id();
    over.set_value();
  });
  EXPECT_EQ(Side().waiting(), 102u) << "what is being done counts";
  go.set_value();
  over.get_future().wait();
  ASSERT_EQ(done.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
  EXPECT_EQ(first_thread, last_thread);
  EXPECT_NE(first_thread, std::this_thread::get_id());
}

TEST(SideThread, AThreadIsThereAgainWhenThereIsSomethingAgain) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ResultOf([i] { return i; }), i);
    AwaitIdle();
  }
}

// An engine that is pinned would have shared its processor with it.
TEST(SideThread, ItHasTheProcessorsOfTheProcessNotThoseOfWhoBrings) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(getpid(), sizeof(all), &all), 0);
  AwaitIdle();
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const cpu_set_t there = ResultOf([] {
      cpu_set_t cpus;
      CPU_ZERO(&cpus);
      sched_getaffinity(0, sizeof(cpus), &cpus);
      return cpus;
    });
    EXPECT_TRUE(CPU_EQUAL(&there, &all));
  }).join();
}

// With an engine's real-time priority it would be the engine's turn, as long as it takes.
TEST(SideThread, ItHasAnOrdinaryPriorityWhateverThatOfWhoBrings) {
  AwaitIdle();
  std::thread([&] {
    const sched_param first{.sched_priority = 1};
    if (pthread_setschedparam(pthread_self(), SCHED_RR, &first) != 0) {
      GTEST_SKIP() << "real-time priorities are not permitted here";
    }
    EXPECT_EQ(ResultOf([] { return sched_getscheduler(0); }), SCHED_OTHER);
  }).join();
}

// A handler of the host's ran on a thread of Weft's, or a signal that it waits for came there.
TEST(SideThread, ItTakesNoSignals) {
  AwaitIdle();
  const bool takes = ResultOf([] {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return sigismember(&blocked, SIGTERM) == 0 || sigismember(&blocked, SIGCHLD) == 0;
  });
  EXPECT_FALSE(takes);
}

}  // namespace
}  // namespace weft
