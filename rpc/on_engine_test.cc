#include "rpc/on_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "rpc/testing/loopback.h"

namespace weft::test {
namespace {

// A task that tells how often it was handed to the engine.
struct CountedTask {
  CountedTask(std::atomic<int>* attempts, std::atomic<int>* runs)
      : attempts(attempts), runs(runs) {}
  CountedTask(const CountedTask& other) : attempts(other.attempts), runs(other.runs) {
    ++*attempts;
  }
  CountedTask(CountedTask&&) noexcept = default;
  void operator()() const { ++*runs; }

  std::atomic<int>* attempts;
  std::atomic<int>* runs;
};

// A task that found the inbox full had been moved into the failed attempt: what came through later
// was empty, and the call that another thread had finished never got its reply.
TEST(PostSurelyTest, ATaskSurvivesAFullInbox) {
  auto engine = *OpenLoopbackEngine();
  while (engine->Post([] {})) {
  }
  std::atomic<int> attempts{0};
  std::atomic<int> runs{0};
  std::thread poster([&] { PostSurely(*engine, CountedTask(&attempts, &runs)); });
  while (attempts < 2) std::this_thread::yield();  // one has failed
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
