// A slab (core/slab.h) of small values whose first cell is inside of it, beside what else its owner
// has.
//
// For owners of which there are thousands, and which mostly have one object in use: as long as no
// second one was needed, it costs no line and no page of its own. With the second all move to an
// array. Handles are as a slab's: {slot, generation}, odd while live.
//
// Threads, errors: as core/slab.h.
// Lifetime: a pointer is good until the next Allocate(); a handle until its object is freed.
// Invariants: size() <= capacity; a cell's generation is odd while its object is live, and even
//   while it is free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "core/check.h"
#include "core/inline.h"
#include "core/slab.h"

namespace weft {

template <class T>
class NearSlab {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  NearSlab() = default;
  NearSlab(const NearSlab&) = delete;
  NearSlab& operator=(const NearSlab&) = delete;

  // Room for `capacity` objects from now on. REQUIRES: !started(), 1 <= capacity < 2^32 - 1.
  void Start(std::size_t capacity) {
    WEFT_CHECK(!started() && capacity >= 1 && capacity < kEnd);
    capacity_ = static_cast<uint32_t>(capacity);
  }
  // As new: every handle is stale, and may be given out again after the next Start().
  void Clear() {
    many_.reset();
    first_ = Cell();
    cells_ = &first_;
    first_free_ = kEnd;
    made_ = size_ = capacity_ = 0;
  }
  bool started() const { return capacity_ != 0; }

  // A free object and its handle, or nullptr (and *handle untouched) when all are in use.
  [[nodiscard]] WEFT_INLINE T* Allocate(SlabHandle* handle) {
    if (first_free_ == kEnd && !MakeNext()) [[unlikely]]
      return nullptr;
    Cell& cell = cells_[first_free_];
    ++cell.generation;  // even to odd: live
    *handle = {first_free_, cell.generation};
    first_free_ = cell.next_free;
    ++size_;
    return &cell.value;
  }
  // The object, or nullptr if the handle is stale, out of range or invented: safe for handles from
  // a peer.
  [[nodiscard]] T* Get(SlabHandle handle) {
    if (handle.slot >= made_) return nullptr;
    Cell& cell = cells_[handle.slot];
    if (cell.generation != handle.generation || !IsLive(handle.generation)) return nullptr;
    return &cell.value;
  }
  // REQUIRES: the handle is live.
  void Free(SlabHandle handle) { WEFT_CHECK(Release(handle) != nullptr); }
  // Get() and Free() in one.
  [[nodiscard]] WEFT_INLINE T* Release(SlabHandle handle) {
    T* const object = Get(handle);
    if (object == nullptr) return nullptr;
    Cell& cell = cells_[handle.slot];
    cell.generation = handle.generation + 1;  // odd to even: free; wraps to 0, which is free, too
    cell.next_free = first_free_;
    first_free_ = handle.slot;
    --size_;
    return object;
  }

  // Calls visit(T&) or visit(SlabHandle, T&) for every live object, in slot order; `visit` may free
  // any object.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t slot = 0; slot < made_; ++slot) {
      Cell& cell = cells_[slot];
      if (!IsLive(cell.generation)) continue;
      if constexpr (std::is_invocable_v<Visit&, SlabHandle, T&>) {
        visit(SlabHandle{slot, cell.generation}, cell.value);
      } else {
        visit(cell.value);
      }
    }
  }

  std::size_t size() const { return size_; }
  void CheckInvariants() const {
    WEFT_CHECK(size_ <= made_ && made_ <= capacity_);
    uint32_t live = 0;
    for (uint32_t slot = 0; slot < made_; ++slot) live += IsLive(cells_[slot].generation);
    WEFT_CHECK(live == size_);
    uint32_t free = 0;
    for (uint32_t slot = first_free_; slot != kEnd; slot = cells_[slot].next_free) {
      WEFT_CHECK(slot < made_ && !IsLive(cells_[slot].generation));
      WEFT_CHECK(++free <= made_);  // else the list has a cycle
    }
    WEFT_CHECK(free == made_ - size_);
  }

 private:
  static constexpr uint32_t kEnd = 0xFFFFFFFF;  // of the free list
  static bool IsLive(uint32_t generation) { return generation % 2 == 1; }

  struct Cell {
    uint32_t generation = 0;
    uint32_t next_free = kEnd;  // only meaningful while free
    T value{};
  };

  // One more free cell. False: there are as many as may be.
  WEFT_COLD bool MakeNext() {
    if (made_ == capacity_) return false;
    if (made_ == 1) {
      many_ = std::make_unique<Cell[]>(capacity_);
      many_[0] = first_;
      cells_ = many_.get();
    }
    first_free_ = made_++;
    return true;
  }

  Cell* cells_ = &first_;
  uint32_t first_free_ = kEnd;
  uint32_t made_ = 0;
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
  Cell first_;
  std::unique_ptr<Cell[]> many_;
};

}  // namespace weft
