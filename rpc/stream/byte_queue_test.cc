#include "rpc/stream/byte_queue.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>

#include "core/random.h"

namespace weft {
namespace {

TEST(ByteQueueTest, GivesBackWhatItWasGivenInOrder) {
  Random random(7);
  ByteQueue queue;
  std::deque<std::string> model;
  uint32_t pushed = 0;
  uint32_t popped = 0;
  for (int step = 0; step < 20'000; ++step) {
    if (random.Chance(0.5)) {
      model.emplace_back(random.Uniform(200), static_cast<char>('a' + pushed % 26));
      queue.PushBack(pushed++, AsBytes(model.back()));
    } else if (!model.empty()) {
      ASSERT_EQ(queue.front_number(), popped++);
      ASSERT_EQ(AsStringView(queue.front()), model.front());
      queue.PopFront();
      model.pop_front();
    }
    ASSERT_EQ(queue.count(), model.size());
    ASSERT_EQ(queue.empty(), model.empty());
  }
}

TEST(ByteQueueTest, WhatIsFilledAndEmptiedAgainTakesNoMoreMemory) {
  ByteQueue queue;
  const std::string message(100, 'm');
  for (int i = 0; i < 10; ++i) queue.PushBack(0, AsBytes(message));
  const size_t capacity = queue.capacity();
  EXPECT_LE(capacity, 2 * 10 * (message.size() + ByteQueue::kEntryBytes));
  for (int i = 0; i < 1000; ++i) {
    queue.PopFront();
    queue.PushBack(0, AsBytes(message));
  }
  EXPECT_LE(queue.capacity(), 2 * capacity);
}

TEST(ByteQueueTest, GivesBackItsMemoryOnlyWhenItIsEmptyAndLarge) {
  ByteQueue queue;
  queue.PushBack(0, AsBytes(std::string(10'000, 'm')));
  queue.Trim(0);
  EXPECT_GE(queue.capacity(), 10'000u);
  queue.PopFront();
  queue.Trim(20'000);
  EXPECT_GE(queue.capacity(), 10'000u);
  queue.Trim(4096);
  EXPECT_EQ(queue.capacity(), 0u);
  queue.PushBack(1, {});
  EXPECT_TRUE(queue.front().empty());
}

}  // namespace
}  // namespace weft
