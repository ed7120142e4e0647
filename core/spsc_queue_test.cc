#include "core/spsc_queue.h"

#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(SpscQueue, FirstInFirstOut) {
  SpscQueue<int> queue(4);
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(queue.TryPush(int{i}));
  int value = -1;
  for (int i = 0; i < 4; ++i) {
    EXPECT_TRUE(queue.TryPop(&value));
    EXPECT_EQ(value, i);
  }
  EXPECT_FALSE(queue.TryPop(&value));
  EXPECT_EQ(value, 3);
}

TEST(SpscQueue, CapacityIsRoundedUpToAPowerOfTwo) {
  EXPECT_EQ(SpscQueue<int>(1).capacity(), 1u);
  EXPECT_EQ(SpscQueue<int>(5).capacity(), 8u);
  EXPECT_EQ(SpscQueue<int>(64).capacity(), 64u);
}

TEST(SpscQueue, FullQueueRefusesAndLeavesTheValueAlone) {
  SpscQueue<std::unique_ptr<int>> queue(1);
  EXPECT_TRUE(queue.TryPush(std::make_unique<int>(1)));
  auto refused = std::make_unique<int>(2);
  EXPECT_FALSE(queue.TryPush(std::move(refused)));
  ASSERT_NE(refused, nullptr);
  std::unique_ptr<int> popped;
  EXPECT_TRUE(queue.TryPop(&popped));
  EXPECT_TRUE(queue.TryPush(std::move(refused)));
  EXPECT_EQ(refused, nullptr);
}

TEST(SpscQueue, ElementsThatNobodyTookAreDestroyed) {
  const auto watched = std::make_shared<int>(1);
  {
    SpscQueue<std::shared_ptr<int>> queue(8);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(queue.TryPush(std::shared_ptr<int>(watched)));
    std::shared_ptr<int> popped;
    ASSERT_TRUE(queue.TryPop(&popped));
    popped.reset();
    EXPECT_EQ(watched.use_count(), 5);
  }
  EXPECT_EQ(watched.use_count(), 1);
}

TEST(SpscQueue, AgreesWithItsModel) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  SpscQueue<std::string> queue(16);
  std::deque<std::string> model;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Chance(0.5)) {
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
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
  }
}

// Small, so that both ends of the ring are met all the time. The elements are pointers:
// ThreadSanitizer sees whether what they point to was handed over.
TEST(SpscQueue, TwoThreadsLoseNothingAndKeepTheOrder) {
  constexpr int kElements = 100'000;
  for (const std::size_t capacity : {1, 4, 256}) {
    SpscQueue<std::unique_ptr<int>> queue(capacity);
    std::thread producer([&queue] {
      for (int i = 0; i < kElements; ++i) {
        auto element = std::make_unique<int>(i);
        while (!queue.TryPush(std::move(element))) std::this_thread::yield();
      }
    });
    for (int expected = 0; expected < kElements;) {
      std::unique_ptr<int> element;
      EXPECT_LE(queue.size(), queue.capacity());
      if (!queue.TryPop(&element)) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(*element, expected++);
    }
    producer.join();
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace weft
