// A bounded queue from many threads to one, without locks and without waiting.
//
// The ring of cells with sequence numbers is D. Vyukov's bounded queue (1024cores.net, "Bounded
// MPMC queue"), with the consumer's side reduced to one thread: it needs no atomic
// read-modify-write. Producers contend on one index only; a cell's sequence number says whose turn
// it is: `i` free for the i-th push, `i + 1` filled by it, `i + capacity` free for the next round.
//
// Threads:     TryPush by any; TryPop and empty() by one thread. Pushes of one producer stay in
//              order. Whatever a producer wrote before TryPush is visible to the consumer after
//              TryPop. A producer that is suspended between claiming a cell and filling it hides
//              later elements until it runs again; it never blocks other producers until the
//              ring is full.
// Lifetime:    elements still inside are destroyed with the queue.
// Errors:      a full queue refuses: TryPush returns false and leaves its argument untouched.
// Invariants:  0 <= tail - head <= capacity, with indices that only grow.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "core/block_memory.h"
#include "core/cache_line.h"
#include "core/check.h"

namespace weft {

template <class T>
class MpscQueue {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

 public:
  // Room for `capacity` elements, rounded up to a power of two, at least 2 (with a single cell,
  // "filled" and "free for the next round" would be the same number). All memory is taken here.
  // REQUIRES: 1 <= capacity <= 2^31.
  explicit MpscQueue(std::size_t capacity)
      : mask_(MaskFor(capacity)), cells_(TakeTable<Cell>(mask_ + 1)) {
    for (uint64_t i = 0; i <= mask_; ++i) {
      (::new (static_cast<void*>(cells_ + i)) Cell)->turn.store(i, std::memory_order_relaxed);
    }
  }

  ~MpscQueue() {
    for (; !empty(); ++head_) {
      Cell& cell = cells_[head_ & mask_];
      std::destroy_at(cell.value());
    }
    GiveTable(cells_, mask_ + 1);  // cells have nothing to destroy
  }

  MpscQueue(const MpscQueue&) = delete;
  MpscQueue& operator=(const MpscQueue&) = delete;

  // Any thread. Moves from `value` exactly if it returns true.
  [[nodiscard]] bool TryPush(T&& value) {
    uint64_t tail = tail_.load(std::memory_order_relaxed);
    while (true) {
      Cell& cell = cells_[tail & mask_];
      const uint64_t turn = cell.turn.load(std::memory_order_acquire);
      if (turn == tail) {
        // The cell is free. Relaxed is enough to claim it: its turn carries the ordering.
        if (tail_.compare_exchange_weak(tail, tail + 1, std::memory_order_relaxed)) {
          ::new (static_cast<void*>(cell.storage)) T(std::move(value));
          cell.turn.store(tail + 1, std::memory_order_release);
          return true;
        }
      } else if (turn < tail) {
        return false;  // Still holds the element of the previous round.
      } else {
        tail = tail_.load(std::memory_order_relaxed);  // Another producer was faster.
      }
    }
  }

  // Consumer only. Moves the oldest element into *value; false when there is none.
  [[nodiscard]] bool TryPop(T* value) {
    if (empty()) return false;
    Cell& cell = cells_[head_ & mask_];
    *value = std::move(*cell.value());
    std::destroy_at(cell.value());
    cell.turn.store(head_ + mask_ + 1, std::memory_order_release);
    ++head_;
    return true;
  }

  // Consumer only: whether TryPop would fail now. A consumer that is about to sleep must have
  // announced that first (armed flag, then a sequentially consistent fence, then empty()).
  bool empty() const {
    return cells_[head_ & mask_].turn.load(std::memory_order_acquire) != head_ + 1;
  }

  // Consumer only: whether all cells are filled, so that TryPush would fail now.
  bool full() const {
    const uint64_t last = head_ + mask_;
    return cells_[last & mask_].turn.load(std::memory_order_acquire) == last + 1;
  }

  // Any thread: whether half of the cells are filled, or more, as of a moment ago.
  bool half_full() const {
    const uint64_t ahead = tail_.load(std::memory_order_relaxed) + capacity() / 2;
    return cells_[ahead & mask_].turn.load(std::memory_order_acquire) < ahead;
  }

  std::size_t capacity() const { return static_cast<std::size_t>(mask_) + 1; }

 private:
  struct Cell {
    T* value() { return std::launder(reinterpret_cast<T*>(storage)); }

    std::atomic<uint64_t> turn;
    alignas(T) std::byte storage[sizeof(T)];
  };

  static uint64_t MaskFor(std::size_t capacity) {
    // Ours: EngineOptions::inbox_slots is checked before
    WEFT_CHECK(capacity >= 1 && capacity <= (std::size_t{1} << 31));
    return std::bit_ceil(std::max<std::size_t>(capacity, 2)) - 1;
  }

  // Constant after construction.
  const uint64_t mask_;
  Cell* const cells_;

  // Written by the producers: the next push.
  alignas(kCacheLineBytes) std::atomic<uint64_t> tail_{0};

  // The consumer's own: the next pop.
  alignas(kCacheLineBytes) uint64_t head_ = 0;
};

}  // namespace weft
