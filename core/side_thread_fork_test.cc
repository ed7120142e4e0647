// What becomes of a side thread's line in children of fork(2).
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "core/process_wide.h"
#include "core/side_thread.h"

namespace weft {
namespace {

// Its thread may outlive the test.
SideThread& Side() {
  static constinit ProcessWide<SideThread> side;
  return side.Get();
}

// Whether tasks are done.
bool Works() {
  std::promise<bool> done;
  Side().Bring([&] { done.set_value(true); });
  return done.get_future().get();
}

// The thread is not in the child, nor is what it was at the child's to do.
TEST(SideThreadFork, AChildOfForkLeavesTheLineToItsParent) {
  std::promise<void> go;
  int done = 0;
  Side().Bring([&] { go.get_future().wait(); });
  Side().Bring([&] { ++done; });
  const pid_t child = fork();
  if (child == 0) {
    const bool none = Side().waiting() == 0;
    const bool works = Works();
    _exit(none && works && done == 0 ? 0 : 1);
  }
  go.set_value();
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(Works());
  EXPECT_EQ(done, 1);
}

// The child's first look waited for a fork that waited for it.
TEST(SideThreadFork, AChildMayForkWhileItLooksForTheFirstTime) {
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      std::thread look([] { Side().waiting(); });
      const pid_t grandchild = fork();
      if (grandchild == 0) _exit(0);
      waitpid(grandchild, nullptr, 0);
      look.join();
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace
}  // namespace weft
