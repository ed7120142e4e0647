#include "rpc/coroutine/task.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/memory_hooks.h"
#include "rpc/coroutine/await.h"
#include "rpc/testing/loopback.h"
#include "rpc/testing/two_threads.h"

namespace weft::test {
namespace {

// Ends when the test says so.
class Gate {
 public:
  auto Passed() {
    return Await<int>([this](Function<void(int)> done) { done_ = std::move(done); });
  }
  bool awaited() const { return static_cast<bool>(done_); }
  void Open(int value) {
    Function<void(int)> done = std::move(done_);
    done_ = nullptr;
    done(value);
  }

 private:
  Function<void(int)> done_;
};

Task<int> One() { co_return 1; }

Task<int> Through(Gate& gate) { co_return co_await gate.Passed(); }

TEST(TaskTest, RunsWhenItIsBegunAndNotBefore) {
  bool ran = false;
  const auto task = [](bool& flag) -> Task<> {
    flag = true;
    co_return;
  };
  {
    Task<> never = task(ran);
    EXPECT_TRUE(static_cast<bool>(never));
  }
  EXPECT_FALSE(ran);
  int ends = 0;
  Start(task(ran), [&] { ++ends; });
  EXPECT_TRUE(ran);
  EXPECT_EQ(ends, 1);
}

TEST(TaskTest, WaitsForWhatItAwaitsAndEndsWithAValue) {
  Gate gate;
  const auto twice = [](Gate& of) -> Task<std::unique_ptr<int>> {
    const int first = co_await Through(of);
    const int second = co_await Through(of);
    co_return std::make_unique<int>(first + second);
  };
  std::unique_ptr<int> sum;
  Start(twice(gate), [&](std::unique_ptr<int> value) { sum = std::move(value); });
  gate.Open(3);
  EXPECT_EQ(sum, nullptr);
  gate.Open(4);
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(*sum, 7);
}

// Compilers that do not optimise resume one coroutine by another as a call: a loop of awaits that
// need not wait ended on a stack of some 50,000 of them.
TEST(TaskTest, ALoopOfAwaitsThatNeedNotWaitUsesNoStack) {
  const auto sum = []() -> Task<int> {
    int total = 0;
    for (int i = 0; i < 1'000'000; ++i) total += co_await One();
    co_return total;
  };
  int total = 0;
  Start(sum(), [&](int value) { total = value; });
  EXPECT_EQ(total, 1'000'000);
}

// The same of operations whose callback comes while they are started: each resumed the coroutine
// inside the one before.
TEST(TaskTest, ALoopOfOperationsThatEndAtOnceUsesNoStack) {
  const auto sum = []() -> Task<int> {
    int total = 0;
    for (int i = 0; i < 1'000'000; ++i) {
      total += co_await Await<int>([](auto done) { done(1); });
    }
    co_return total;
  };
  int total = 0;
  Start(sum(), [&](int value) { total = value; });
  EXPECT_EQ(total, 1'000'000);
}

// What lives in a coroutine goes with it, innermost first, before its end is told.
TEST(TaskTest, TheFrameGoesBeforeTheEndIsTold) {
  std::string order;
  struct Note {
    ~Note() { *to += what; }
    std::string* to;
    char what;
  };
  Gate gate;
  const auto inner = [](Gate& of, std::string& to) -> Task<int> {
    const Note note{&to, 'i'};
    co_return co_await of.Passed();
  };
  const auto outer = [&inner](Gate& of, std::string& to) -> Task<int> {
    const Note note{&to, 'o'};
    const int value = co_await inner(of, to);
    to += '-';
    co_return value;
  };
  Start(outer(gate, order), [&](int value) { order += std::to_string(value); });
  EXPECT_EQ(order, "");
  gate.Open(5);
  EXPECT_EQ(order, "i-o5");
}

TEST(TaskTest, AllRunAtOnceAndAreAwaitedTogether) {
  std::vector<Gate> gates(3);
  const auto all = [](std::vector<Gate>& of) -> Task<std::vector<int>> {
    std::vector<Task<int>> tasks;
    for (Gate& gate : of) tasks.push_back(Through(gate));
    tasks.push_back(One());
    co_return co_await WhenAll(std::move(tasks));
  };
  std::vector<int> values;
  Start(all(gates), [&](std::vector<int> ended) { values = std::move(ended); });
  for (Gate& gate : gates) EXPECT_TRUE(gate.awaited());
  gates[2].Open(30);
  gates[0].Open(10);
  EXPECT_TRUE(values.empty());
  gates[1].Open(20);
  EXPECT_EQ(values, (std::vector<int>{10, 20, 30, 1}));
}

TEST(TaskTest, TasksWithoutAValueAreAwaitedTogether) {
  int ran = 0;
  const auto one = [&ran]() -> Task<> {
    ++ran;
    co_return;
  };
  std::vector<Task<>> tasks;
  for (int i = 0; i < 3; ++i) tasks.push_back(one());
  bool ended = false;
  Start(WhenAll(std::move(tasks)), [&] { ended = true; });
  EXPECT_TRUE(ended);
  EXPECT_EQ(ran, 3);
}

TEST(TaskTest, NothingIsAwaitedTogetherToo) {
  bool ended = false;
  Start(WhenAll(std::vector<Task<int>>()), [&](const std::vector<int>& values) {
    EXPECT_TRUE(values.empty());
    ended = true;
  });
  EXPECT_TRUE(ended);
}

// --- threads -------------------------------------------------------------------------------------

Task<std::thread::id> Here() { co_return std::this_thread::get_id(); }

TEST(TaskThreadsTest, WaitDrivesTheEngineUntilTheEnd) {
  auto engine = *OpenLoopbackEngine();
  const auto task = [](EngineCore& of) -> Task<int> {
    co_return co_await Await<int>([&](Function<void(int)> done) {
      EXPECT_TRUE(of.Post([done = std::move(done)]() mutable { done(9); }));
    });
  };
  EXPECT_EQ(Wait(*engine, task(*engine)), 9);
  Wait(*engine, [](EngineCore& of) -> Task<> { co_await ResumeOn(of); }(*engine));
}

TEST(TaskThreadsTest, ResumeOnMovesItToAnExecutorAndBack) {
  auto engine = *OpenLoopbackEngine();
  TwoThreads threads;
  const std::thread::id main = std::this_thread::get_id();
  const auto task = [&](EngineCore& of) -> Task<> {
    EXPECT_EQ(co_await Here(), main);
    EXPECT_TRUE(co_await ResumeOn(threads));
    EXPECT_NE(std::this_thread::get_id(), main);
    // Also what it awaits, and after awaits that end on the engine.
    EXPECT_NE(co_await Here(), main);
    co_await Await<int>([&](Function<void(int)> done) {
      EXPECT_TRUE(of.Post([done = std::move(done)]() mutable { done(1); }));
    });
    EXPECT_NE(std::this_thread::get_id(), main);
    co_await ResumeOn(of);
    EXPECT_EQ(std::this_thread::get_id(), main);
    EXPECT_TRUE(of.OnEngine());
  };
  Wait(*engine, task(*engine));
}

// Each executor is one thread, which says which it is.
class Named final : public Executor {
 public:
  explicit Named(int name) : name_(name) {}
  bool Run(Function<void()> task) override {
    std::thread([this, &task] {
      current = name_;
      task();
      current = 0;
    }).join();
    return true;
  }
  static inline thread_local int current = 0;

 private:
  const int name_;
};

// The child had moved, and the parent went on where it was, on the child's executor.
TEST(TaskThreadsTest, AnAwaiterGoesOnOnItsOwnExecutor) {
  Named first(1);
  Named second(2);
  Gate gate;
  const auto child = [&]() -> Task<int> {
    EXPECT_TRUE(co_await ResumeOn(second));
    co_await gate.Passed();
    co_return Named::current;
  };
  const auto parent = [&]() -> Task<std::pair<int, int>> {
    EXPECT_TRUE(co_await ResumeOn(first));
    const int childs = co_await child();
    co_return std::pair(childs, Named::current);
  };
  std::pair<int, int> names;
  Start(parent(), [&](std::pair<int, int> value) { names = value; });
  gate.Open(0);
  EXPECT_EQ(names, std::pair(2, 1));
}

// A thread that waited for room in an inbox that it had to empty itself waited for ever.
TEST(TaskThreadsTest, MoreThanTheInboxHoldsResumeOnTheEngine) {
  auto engine = *OpenLoopbackEngine();
  const auto resume = [](EngineCore& of) -> Task<> { co_await ResumeOn(of); };
  std::vector<Task<>> tasks;
  for (int i = 0; i < 10'000; ++i) tasks.push_back(resume(*engine));
  Wait(*engine, WhenAll(std::move(tasks)));
}

class NoRoom final : public Executor {
 public:
  bool Run(Function<void()>) override { return false; }
};

TEST(TaskThreadsTest, AnExecutorWithoutRoomLeavesItWhereItIs) {
  NoRoom full;
  const auto task = [&]() -> Task<bool> { co_return co_await ResumeOn(full); };
  bool moved = true;
  Start(task(), [&](bool value) { moved = value; });
  EXPECT_FALSE(moved);
}

// Tasks that end on several threads at once, awaited together: each is counted once.
TEST(TaskThreadsTest, TogetherFromManyThreads) {
  auto engine = *OpenLoopbackEngine();
  TwoThreads threads;
  const auto one = [&](int i) -> Task<int> {
    EXPECT_TRUE(co_await ResumeOn(threads));
    co_return i;
  };
  const auto all = [&]() -> Task<int> {
    int sum = 0;
    for (int round = 0; round < 200; ++round) {
      std::vector<Task<int>> tasks;
      for (int i = 0; i < 5; ++i) tasks.push_back(one(i));
      for (int value : co_await WhenAll(std::move(tasks))) sum += value;
    }
    co_return sum;
  };
  EXPECT_EQ(Wait(*engine, all()), 2000);
}

// A task that ends elsewhere just as its awaiter begins to wait: the awaiter goes on once.
TEST(TaskThreadsTest, AnEndThatMeetsTheAwaiterIsTakenOnce) {
  auto engine = *OpenLoopbackEngine();
  TwoThreads threads;
  const auto elsewhere = [&]() -> Task<int> {
    EXPECT_TRUE(co_await ResumeOn(threads));
    co_return 1;
  };
  const auto many = [&]() -> Task<int> {
    int sum = 0;
    for (int i = 0; i < 2000; ++i) sum += co_await elsewhere();
    co_return sum;
  };
  EXPECT_EQ(Wait(*engine, many()), 2000);
}

// --- where frames lie ----------------------------------------------------------------------------

struct Holder {
  FrameMemory memory;
};
FrameMemory& FrameMemoryOf(Holder& holder) { return holder.memory; }

Task<bool> InMemory(int /*before*/, Holder& holder) {
  co_return holder.memory.Take(1) == nullptr;  // taken: by this
}

TEST(FrameMemoryTest, AFrameLiesInTheMemoryOfItsFirstParameterThatHasSome) {
  Holder holder;
  bool in_memory = false;
  for (int round = 0; round < 3; ++round) {
    Start(InMemory(1, holder), [&](bool value) { in_memory = value; });
    EXPECT_TRUE(in_memory);
    ASSERT_NE(holder.memory.Take(1), nullptr) << "it was given back";
    holder.memory.Give();
  }
}

TEST(FrameMemoryTest, ASecondFrameComesFromTheHeap) {
  Holder holder;
  Gate gate;
  const auto waits = [](Holder&, Gate& of) -> Task<int> { co_return co_await of.Passed(); };
  int ends = 0;
  Start(waits(holder, gate), [&](int) { ++ends; });
  bool taken = false;
  Start(InMemory(1, holder), [&](bool value) { taken = value; });
  EXPECT_TRUE(taken);
  EXPECT_EQ(holder.memory.Take(1), nullptr) << "still the first one's";
  gate.Open(0);
  EXPECT_EQ(ends, 1);
  EXPECT_NE(holder.memory.Take(1), nullptr);
}

TEST(FrameMemoryTest, WhatIsTooLargeComesFromTheHeap) {
  FrameMemory memory;
  EXPECT_EQ(memory.Take(FrameMemory::kMostBytes + 1), nullptr);
  EXPECT_NE(memory.Take(FrameMemory::kMostBytes), nullptr);
}

TEST(FrameMemoryTest, WhatIsKeptIsABlockThatIsCountedAndGivenBack) {
  const auto counted = [] { return MemoryUsage().of(MemoryKind::kTables).bytes; };
  const uint64_t before = counted();
  {
    FrameMemory memory;
    EXPECT_EQ(counted(), before);
    ASSERT_NE(memory.Take(1000), nullptr);
    EXPECT_EQ(counted(), before + 1000);
    memory.Give();
    ASSERT_NE(memory.Take(500), nullptr);
    EXPECT_EQ(counted(), before + 1000) << "it has room for that";
  }
  EXPECT_EQ(counted(), before);
}

}  // namespace
}  // namespace weft::test
