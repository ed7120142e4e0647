#include "rpc/operation/on_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "rpc/testing/loopback.h"

namespace weft::test {
namespace {

// A task that found the inbox full had been moved into the failed attempt: what came through later
// was empty, and the call that another thread had finished never got its reply. (That Post() leaves
// such a task alone is shown in transport/engine_test.cc.)
TEST(PostSurelyTest, ATaskSurvivesAFullInbox) {
  auto engine = *OpenLoopbackEngine();
  while (engine->Post([] {})) {
  }
  std::atomic<bool> posting{false};
  std::atomic<int> runs{0};
  std::thread poster([&] {
    posting = true;
    PostSurely(*engine, [&runs] { ++runs; });
  });
  while (!posting) std::this_thread::yield();
  while (runs == 0) engine->Poll();
  poster.join();
  EXPECT_EQ(runs, 1);
}

TEST(RunOnEngineTest, RunsAfterWhatWasPostedBefore) {
  auto engine = *OpenLoopbackEngine();
  int order = 0;
  ASSERT_TRUE(engine->Post([&] { EXPECT_EQ(order++, 0); }));
  RunOnEngine(*engine, [&] { EXPECT_EQ(order++, 1); });
  EXPECT_EQ(order, 2);
}

TEST(RunOnEngineTest, MakesRoomItselfWhereTheInboxIsFull) {
  auto engine = *OpenLoopbackEngine();
  while (engine->Post([] {})) {
  }
  bool ran = false;
  RunOnEngine(*engine, [&] { ran = true; });
  EXPECT_TRUE(ran);
}

TEST(RunOnEngineTest, RunsAtOnceInsideATurn) {
  auto engine = *OpenLoopbackEngine();
  bool ran = false;
  ASSERT_TRUE(engine->Post([&] { RunOnEngine(*engine, [&] { ran = true; }); }));
  engine->Poll();
  EXPECT_TRUE(ran);
}

}  // namespace
}  // namespace weft::test
