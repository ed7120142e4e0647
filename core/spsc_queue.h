// A bounded queue from one thread to one other, without locks and without waiting.
//
// Each side keeps its last view of the other side's index and looks again only when that view says
// full or empty: while the queue is neither, the two threads share no cache line but the elements'.
//
// Threads:     TryPush by one thread, TryPop and empty() by one thread; size() by any. Whatever the
//              producer wrote before TryPush is visible to the consumer after TryPop.
// Lifetime:    elements still inside are destroyed with the queue.
// Errors:      a full queue refuses: TryPush returns false and leaves its argument untouched.
// Invariants:  0 <= tail - head <= capacity, with indices that only grow.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

#include "core/cache_line.h"
#include "core/check.h"

namespace weft {

template <class T>
class SpscQueue {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

 public:
  // Room for `capacity` elements, rounded up to a power of two. All memory is taken here.
  // REQUIRES: 1 <= capacity <= 2^31.
  explicit SpscQueue(std::size_t capacity)
      : mask_(MaskFor(capacity)), cells_(std::allocator<T>().allocate(mask_ + 1)) {}

  ~SpscQueue() {
    const uint64_t tail = tail_.load(std::memory_order_acquire);
    for (uint64_t head = head_.load(std::memory_order_acquire); head != tail; ++head) {
      std::destroy_at(&cells_[head & mask_]);
    }
    std::allocator<T>().deallocate(cells_, mask_ + 1);
  }

  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;

  // Producer only. Moves from `value` exactly if it returns true.
  [[nodiscard]] bool TryPush(T&& value) {
    const uint64_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - producers_head_ > mask_) {
      producers_head_ = head_.load(std::memory_order_acquire);
      if (tail - producers_head_ > mask_) return false;
    }
    std::construct_at(&cells_[tail & mask_], std::move(value));
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  // Consumer only. Moves the oldest element into *value; false when there is none.
  [[nodiscard]] bool TryPop(T* value) {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    if (head == consumers_tail_) {
      consumers_tail_ = tail_.load(std::memory_order_acquire);
      if (head == consumers_tail_) return false;
    }
    T& cell = cells_[head & mask_];
    *value = std::move(cell);
    std::destroy_at(&cell);
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  // Consumer only: whether TryPop would fail now. A consumer that is about to sleep must have
  // announced that first (armed flag, then a sequentially consistent fence, then empty()).
  bool empty() const {
    return head_.load(std::memory_order_relaxed) == tail_.load(std::memory_order_acquire);
  }

  // Any thread: a recent size, for metrics.
  std::size_t size() const {
    // Head first: both only grow, so the difference is never negative.
    const uint64_t head = head_.load(std::memory_order_acquire);
    const uint64_t size = tail_.load(std::memory_order_acquire) - head;
    return size > mask_ ? capacity() : static_cast<std::size_t>(size);
  }

  std::size_t capacity() const { return static_cast<std::size_t>(mask_) + 1; }

 private:
  static uint64_t MaskFor(std::size_t capacity) {
    // Ours: a constant
    WEFT_CHECK(capacity >= 1 && capacity <= (std::size_t{1} << 31));
    return std::bit_ceil(capacity) - 1;
  }

  // Constant after construction.
  const uint64_t mask_;
  T* const cells_;

  // Written by the producer.
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};
  uint64_t producers_head_ = 0;  // <= head_

  // Written by the consumer.
  alignas(kCacheLineBytes) std::atomic<uint64_t> head_{0};
  uint64_t consumers_tail_ = 0;  // <= tail_
};

}  // namespace weft
