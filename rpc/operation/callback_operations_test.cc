#include "rpc/operation/callback_operations.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "core/function.h"
#include "rpc/testing/loopback.h"

namespace weft::test {
namespace {

struct Item : ListNode<> {
  explicit Item(int* alive = nullptr) : alive_(alive) {
    if (alive_ != nullptr) ++*alive_;
  }
  ~Item() {
    if (alive_ != nullptr) --*alive_;
  }
  void RunEarlyEnd() { on_end(); }

  Item* next_spare = nullptr;
  Function<void()> on_end;

 private:
  int* const alive_;
};

// --- SpareList ----------------------------------------------------------------------------------

TEST(SpareListTest, GivesBackTheOneThatCameLast) {
  SpareList<Item, 2> spare;
  EXPECT_EQ(spare.Take(), nullptr);
  auto* first = new Item;
  auto* second = new Item;
  spare.Give(first);
  spare.Give(second);
  EXPECT_EQ(spare.Take(), second);
  EXPECT_EQ(spare.Take(), first);
  EXPECT_EQ(spare.Take(), nullptr);
  delete first;
  delete second;
}

TEST(SpareListTest, KeepsNoMoreThanItsLimitAndDestroysWhatItKeeps) {
  int alive = 0;
  {
    SpareList<Item, 2> spare;
    Item* items[] = {new Item(&alive), new Item(&alive), new Item(&alive)};
    for (Item* item : items) spare.Give(item);
    EXPECT_EQ(alive, 2);
    EXPECT_EQ(spare.count(), 2u);
  }
  EXPECT_EQ(alive, 0);
}

// --- EarlyEnds ----------------------------------------------------------------------------------

class EarlyEndsTest : public testing::Test {
 protected:
  // Adds an item that ends with `name` in `ran_`.
  void Add(Item& item, const std::string& name) {
    item.on_end = [this, name] { ran_ += name; };
    ends_.Add(item);
  }

  std::unique_ptr<EngineCore> engine_ = *OpenLoopbackEngine();
  EarlyEnds<Item> ends_{*engine_};
  std::string ran_;
};

TEST_F(EarlyEndsTest, CallbacksRunInATurnAndInOrder) {
  Item a;
  Item b;
  Add(a, "a");
  Add(b, "b");
  EXPECT_EQ(ran_, "");
  EXPECT_EQ(ends_.count(), 2u);
  engine_->Poll();
  EXPECT_EQ(ran_, "ab");
  EXPECT_EQ(ends_.count(), 0u);
}

TEST_F(EarlyEndsTest, WhatACallbackAddsComesLater) {
  Item a;
  Item b;
  a.on_end = [&] {
    Add(b, "b");
    ran_ += "a";
  };
  ends_.Add(a);
  while (ends_.count() != 0) engine_->Poll();
  EXPECT_EQ(ran_, "ab");
}

TEST_F(EarlyEndsTest, ShuttingDownRunsAllThatIsDueAtOnce) {
  Item a;
  Item b;
  a.on_end = [&] { Add(b, "b"); };
  ends_.Add(a);
  ends_.RunAll();
  EXPECT_EQ(ran_, "b");
  EXPECT_EQ(ends_.count(), 0u);
}

TEST_F(EarlyEndsTest, KnowsWhichOperationIsBeingStarted) {
  Item outer;
  Item inner;
  EXPECT_FALSE(ends_.IsStarting(outer));
  ends_.WhileStarting(outer, [&] {
    EXPECT_TRUE(ends_.IsStarting(outer));
    ends_.WhileStarting(inner, [&] { EXPECT_TRUE(ends_.IsStarting(inner)); });
    EXPECT_TRUE(ends_.IsStarting(outer));
    EXPECT_FALSE(ends_.IsStarting(inner));
  });
  EXPECT_FALSE(ends_.IsStarting(outer));
}

// --- StartOrPost, PostOwned ---------------------------------------------------------------------

// What StartOrPost() does on this thread.
std::string WayOf(EngineCore& engine, bool behind) {
  std::string way;
  StartOrPost(
      engine, behind, [&] { way += "start"; }, [&] { way += "post"; }, [&] { way += " flush"; });
  return way;
}

TEST(StartOrPostTest, AThreadThatMayDriveTheEngineStartsAndFlushes) {
  auto engine = *OpenLoopbackEngine();
  EXPECT_EQ(WayOf(*engine, false), "start flush");
}

TEST(StartOrPostTest, WhoHoldsTheEngineMayStartMoreBeforeItFlushes) {
  auto engine = *OpenLoopbackEngine();
  ASSERT_TRUE(engine->Enter());
  EXPECT_EQ(WayOf(*engine, false), "start");
  engine->Leave();
}

TEST(StartOrPostTest, WhatComesBehindPostedOperationsIsPosted) {
  auto engine = *OpenLoopbackEngine();
  EXPECT_EQ(WayOf(*engine, true), "post");
}

TEST(StartOrPostTest, AThreadThatMayNotDriveTheEnginePosts) {
  auto engine = *OpenLoopbackEngine();
  ASSERT_TRUE(engine->Enter());
  std::string way;
  std::thread([&] { way = WayOf(*engine, false); }).join();
  engine->Leave();
  EXPECT_EQ(way, "post");
}

TEST(PostOwnedTest, TheOperationIsStartedOnTheEngine) {
  auto engine = *OpenLoopbackEngine();
  int alive = 0;
  std::unique_ptr<Item> started;
  EXPECT_EQ(
      PostOwned(*engine, std::make_unique<Item>(&alive), [&](Item& item) { started.reset(&item); }),
      nullptr);
  EXPECT_EQ(alive, 1);
  engine->Poll();
  EXPECT_NE(started, nullptr);
}

TEST(PostOwnedTest, AFullInboxGivesTheOperationBack) {
  auto engine = *OpenLoopbackEngine();
  while (engine->Post([] {})) {
  }
  EXPECT_NE(PostOwned(*engine, std::make_unique<Item>(), [](Item&) { FAIL(); }), nullptr);
  engine->Poll();
}

}  // namespace
}  // namespace weft::test
