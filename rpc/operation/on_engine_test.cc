#include "rpc/operation/on_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>

#include "rpc/testing/loopback.h"
#include "weft/engine.h"

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

// Two engines in whose turns something waited for room in the other's inbox waited for ever: each
// made room in its own with its next turn only. All tasks run, and in their order.
TEST(PostSurelyTest, EnginesMakeRoomForEachOther) {
  EngineOptions options;
  options.inbox_slots = 16;
  options.spin_ns = 0;
  const std::unique_ptr<Engine> engines[] = {*OpenNetworkEngine(options),
                                             *OpenNetworkEngine(options)};
  std::atomic<int> in_turn{0};
  std::atomic<bool> both_full{false};
  std::atomic<int> arrived{0};
  std::atomic<int> next[2] = {0, 0};  // of what was posted
  for (const int own : {0, 1}) {
    ASSERT_TRUE(engines[own]->Post([&, own] {
      ++in_turn;
      while (!both_full) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) {
        PostSurely(CoreOf(*engines[1 - own]), [&arrived] { ++arrived; });
      }
    }));
  }
  while (in_turn < 2) std::this_thread::yield();
  int posted[2] = {0, 0};
  for (const int own : {0, 1}) {
    while (engines[own]->Post([&, own, number = posted[own]] { EXPECT_EQ(next[own]++, number); })) {
      ++posted[own];
    }
  }
  both_full = true;
  while (arrived < 200 || next[0] < posted[0] || next[1] < posted[1]) std::this_thread::yield();
  EXPECT_EQ(posted[0], 16);
}

// An engine that stood still for long, waiting in a turn for another one, took in whatever other
// threads posted meanwhile. All that it took runs, and in its order.
TEST(AwaitRoomTest, WhatAnEngineSetsAsideIsBounded) {
  constexpr int kSlots = 16;
  constexpr int kMostSetAside = 16 * kSlots;
  EngineOptions options;
  options.drive = EngineOptions::Drive::kCaller;
  options.inbox_slots = kSlots;
  const std::unique_ptr<Engine> engine = *OpenNetworkEngine(options);
  int posted = 0;
  int next = 0;
  ASSERT_TRUE(engine->Post([&] {
    for (int attempt = 0; attempt < 1000; ++attempt) {
      while (engine->Post([&, number = posted] { EXPECT_EQ(next++, number); })) ++posted;
      EngineCore::AwaitRoom();
    }
  }));
  EXPECT_GT(engine->Poll(), 0);
  EXPECT_EQ(posted, kSlots + kMostSetAside);
  for (int turn = 0; turn < 1000 && next < posted; ++turn) engine->Poll();
  EXPECT_EQ(next, posted);
  EXPECT_TRUE(engine->Post([] {})) << "there is room again";
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
