#include "core/mpsc_queue.h"

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(MpscQueue, FirstInFirstOut) {
  MpscQueue<int> queue(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.TryPush(int{i}));
  int value = -1;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(queue.TryPop(&value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(queue.TryPop(&value));
  EXPECT_EQ(value, 3);
}

TEST(MpscQueue, CapacityIsAPowerOfTwoOfAtLeastTwo) {
  EXPECT_EQ(MpscQueue<int>(1).capacity(), 2u);
  EXPECT_EQ(MpscQueue<int>(5).capacity(), 8u);
  EXPECT_EQ(MpscQueue<int>(64).capacity(), 64u);
}

TEST(MpscQueue, FullQueueRefusesAndLeavesTheValueAlone) {
  MpscQueue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(2)));
  auto refused = std::make_unique<int>(3);
  EXPECT_FALSE(queue.TryPush(std::move(refused)));
  ASSERT_NE(refused, nullptr);
  std::unique_ptr<int> popped;
  EXPECT_TRUE(queue.TryPop(&popped));
  EXPECT_TRUE(queue.TryPush(std::move(refused)));
  EXPECT_EQ(refused, nullptr);
}

TEST(MpscQueue, ElementsThatNobodyTookAreDestroyed) {
  const auto watched = std::make_shared<int>(1);
  {
    MpscQueue<std::shared_ptr<int>> queue(8);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.TryPush(std::shared_ptr<int>(watched)));
    std::shared_ptr<int> popped;
    ASSERT_TRUE(queue.TryPop(&popped));
    popped.reset();
    EXPECT_EQ(watched.use_count(), 5);
  }
  EXPECT_EQ(watched.use_count(), 1);
}

TEST(MpscQueue, AgreesWithItsModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  MpscQueue<std::string> queue(16);
  std::deque<std::string> model;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Chance(step % 200 < 100 ? 0.6 : 0.4)) {  // full at times, and empty
      std::string text = StrCat("a text that does not fit into the string itself: ", step);
      const std::string copy = text;
      const bool pushed = queue.TryPush(std::move(text));
      ASSERT_EQ(pushed, model.size() < 16);
      if (pushed) model.push_back(copy);
    } else {
      std::string text;
      const bool popped = queue.TryPop(&text);
      ASSERT_EQ(popped, !model.empty());
      if (!popped) continue;
      ASSERT_EQ(text, model.front());
      model.pop_front();
    }
    ASSERT_EQ(queue.empty(), model.empty());
    ASSERT_EQ(queue.full(), model.size() == 16);
    ASSERT_EQ(queue.half_full(), model.size() >= 8);
  }
}

struct Element {
  int producer;
  int number;
};

// Every element of every producer arrives once, and each producer's in order. The elements are
// pointers: ThreadSanitizer sees whether what they point to was handed over.
TEST(MpscQueue, ManyThreadsLoseNothingAndKeepTheirOrder) {
  constexpr int kProducers = 4;
  constexpr int kElements = 20'000;
  for (const std::size_t capacity : {2, 64}) {
    MpscQueue<std::unique_ptr<Element>> queue(capacity);
    std::vector<std::thread> producers;
    for (int producer = 0; producer < kProducers; ++producer) {
      producers.emplace_back([&queue, producer] {
        for (int i = 0; i < kElements; ++i) {
          auto element = std::make_unique<Element>(Element{producer, i});
          while (!queue.TryPush(std::move(element))) std::this_thread::yield();
        }
      });
    }
    std::vector<int> expected(kProducers, 0);
    for (int received = 0; received < kProducers * kElements;) {
      std::unique_ptr<Element> element;
      if (!queue.TryPop(&element)) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(element->number, expected[element->producer]++);
      ++received;
    }
    for (std::thread& producer : producers) producer.join();
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace weft
