// What children of fork() find: real children, each of which ends with 0 if it has found it so.
#include "core/fork_guard.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <latch>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/process_wide.h"

namespace weft {
namespace {

constexpr unsigned kPatienceS = 60;  // of a child that hangs

// `claim` in a child.
template <class F>
bool HoldsInChild(F claim) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceS);
    _exit(claim() ? 0 : 1);
  }
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return status == 0;
}

// Two ends of a connection.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0); }
  ~Pair() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  int ends[2];
};

TEST(ForkGuardTest, AChildIsToldFromItsParentAndItsOwnChild) {
  ForkWatch any([](void*) {}, nullptr);
  const uint32_t here = ForkCount();
  EXPECT_TRUE(HoldsInChild([&] {
    return ForkCount() == here + 1 && HoldsInChild([&] { return ForkCount() == here + 2; });
  }));
  EXPECT_EQ(ForkCount(), here);
}

TEST(ForkGuardTest, AWatchRunsInTheChildAloneUntilItIsDestroyed) {
  int runs = 0;
  auto watch = std::make_unique<ForkWatch>([](void* count) { ++*static_cast<int*>(count); }, &runs);
  EXPECT_TRUE(HoldsInChild([&] { return runs == 1; }));
  EXPECT_EQ(runs, 0);
  watch.reset();
  EXPECT_TRUE(HoldsInChild([&] { return runs == 0; }));
}

// A thread that had it when the process forked is not in the child, and would never give it back.
TEST(ForkGuardTest, AMutexThatIsHeldOverForksIsFreeInTheChild) {
  static constinit ProcessMutex mutex;
  std::atomic<bool> over{false};
  std::atomic<uint64_t> held{0};
  std::thread other([&] {
    while (!over) {
      const std::lock_guard lock(mutex);
      ++held;
    }
  });
  while (held == 0) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(HoldsInChild([&] {
      const std::lock_guard lock(mutex);
      return true;
    })) << i;
  }
  over = true;
  other.join();
}

TEST(ForkGuardTest, AnOwnedSocketIsConnectedToNothingInTheChild) {
  Pair pair;
  OwnDescriptor(pair.ends[0]);
  EXPECT_TRUE(HoldsInChild([&] {
    // The number is taken, so that no file of the child's has it.
    return send(pair.ends[0], "x", 1, MSG_NOSIGNAL) < 0 && fcntl(pair.ends[0], F_GETFD) >= 0 &&
           send(pair.ends[1], "y", 1, MSG_NOSIGNAL) == 1;
  }));
  char byte = 0;
  EXPECT_EQ(recv(pair.ends[0], &byte, 1, 0), 1) << "the parent's is as it was";
  EXPECT_EQ(byte, 'y');
  EXPECT_LT(recv(pair.ends[1], &byte, 1, MSG_DONTWAIT), 0) << "the child has said nothing";
  DisownDescriptor(pair.ends[0]);
}

// A child held its parent's sockets open, and peers did not hear that the parent was gone.
TEST(ForkGuardTest, APeerSeesTheEndWhileAChildLives) {
  Pair pair;
  Pair lifeline;  // of the child
  OwnDescriptor(pair.ends[0]);
  const pid_t child = fork();
  if (child == 0) {
    alarm(kPatienceS);
    close(pair.ends[1]);
    close(lifeline.ends[0]);
    char byte;
    _exit(read(lifeline.ends[1], &byte, 1) == 0 ? 0 : 1);
  }
  DisownDescriptor(pair.ends[0]);
  close(pair.ends[0]);
  pair.ends[0] = -1;
  char byte;
  EXPECT_EQ(recv(pair.ends[1], &byte, 1, 0), 0);
  close(lifeline.ends[0]);
  close(lifeline.ends[1]);
  lifeline.ends[0] = lifeline.ends[1] = -1;
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(ForkGuardTest, OtherDescriptorsStayAsTheyAre) {
  Pair pair;
  OwnDescriptor(pair.ends[0]);
  DisownDescriptor(pair.ends[0]);
  OwnDescriptor(-1);
  OwnDescriptor(kMostDescriptors);
  EXPECT_TRUE(HoldsInChild([&] { return send(pair.ends[0], "x", 1, MSG_NOSIGNAL) == 1; }));
}

TEST(ForkGuardTest, WhatIsLeftBehindIsNotDestroyed) {
  struct Noisy {
    explicit Noisy(bool* gone) : gone(gone) {}
    ~Noisy() { *gone = true; }
    bool* const gone;
  };
  EXPECT_TRUE(HoldsInChild([] {
    bool gone = false;
    auto noisy = std::make_unique<Noisy>(&gone);
    LeaveBehind(std::move(noisy));
    return !gone;
  }));
}

// --- what is made when it is first needed --------------------------------------------------------

// A function's static variable that another thread was just making was waited for, for ever.
TEST(ForkedProcessWideTest, AChildMakesWhatAnotherThreadWasJustMaking) {
  static constinit ProcessWide<int> number;
  std::latch making(1);
  std::latch may_end(1);
  std::thread maker([&] {
    number.Get([&] {
      making.count_down();
      may_end.wait();
      return 1;
    });
  });
  making.wait();
  EXPECT_TRUE(HoldsInChild([&] { return number.Get([] { return 2; }) == 2; }));
  may_end.count_down();
  maker.join();
  EXPECT_EQ(number.Get([] { return 3; }), 1);
  EXPECT_TRUE(HoldsInChild([&] { return number.Get([] { return 4; }) == 1; }));
}

TEST(ForkedProcessWideTest, WhatMustNotBeMadeTwiceIsWaitedForAndAChildIsTold) {
  static constinit ProcessWide<int> number;
  std::latch making(1);
  std::latch may_end(1);
  std::atomic<int> makes{0};
  const auto make = [&] {
    ++makes;
    making.count_down();
    may_end.wait();
    return 1;
  };
  const auto get = [&] { return number.GetOnce(make, [] { return 2; }); };
  std::thread maker([&] { EXPECT_EQ(get(), 1); });
  making.wait();
  std::thread waits([&] { EXPECT_EQ(get(), 1); });
  EXPECT_TRUE(HoldsInChild([&] { return get() == 2 && get() == 2 && makes == 1; }));
  may_end.count_down();
  maker.join();
  waits.join();
  EXPECT_EQ(makes, 1);
  EXPECT_TRUE(HoldsInChild([&] { return get() == 1; }));
}

}  // namespace
}  // namespace weft
