// A fixed number of objects, handed out and taken back in O(1), named by handles that go stale.
//
// A handle {slot, generation} can travel to the network card, or to a peer, and come back much
// later, or forged: `Get` finds the object only if exactly this allocation is still live. This
// replaces both maps from id to object and pointers in completion contexts.
//
// Objects are constructed once, when the slab is, and reused: Allocate and Free run neither
// constructor nor destructor. The caller resets what must not survive from the previous use. So
// vectors keep their capacity and registered memory its registration.
//
// The free list is last-in, first-out: the next Allocate returns the slot that is most likely still
// in cache. Slot and object share their first cache line (no second array is touched), and no
// object of up to 56 bytes straddles two lines. Put the fields used first at the beginning of T.
//
// Threads:     one thread (an engine) at a time.
// Lifetime:    `T*` stays at its address as long as the slab lives; whether the object is still
//              yours is what the handle knows.
// Errors:      a full slab returns nullptr from Allocate, a stale or forged handle from Get.
//              Freeing what is not live is a bug of the caller, and aborts.
// Invariants:  0 <= size <= capacity; capacity - size slots are on the free list, each once; the
//              generation of a live slot is odd, of a free slot even.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "core/cache_line.h"
#include "core/check.h"

namespace weft {

// Names one allocation of one slot. The default value is never valid.
struct SlabHandle {
  uint32_t slot = 0;
  uint32_t generation = 0;  // Odd while live; 0 is never valid.

  // One integer for completion contexts and wire fields; 0 is never a valid handle.
  constexpr uint64_t packed() const { return uint64_t{generation} << 32 | slot; }
  static constexpr SlabHandle FromPacked(uint64_t packed) {
    return {static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
  }

  friend constexpr bool operator==(SlabHandle, SlabHandle) = default;
};

template <class T>
class Slab {
 public:
  // All memory that the slab will ever use is taken here: capacity * sizeof(cell).
  // REQUIRES: 1 <= capacity < 2^32 - 1.
  explicit Slab(std::size_t capacity) : Slab(capacity, [](uint32_t) { return T(); }) {}

  // Object i is constructed in place from make(i); T need not be movable.
  template <class Make>
  Slab(std::size_t capacity, Make&& make) : capacity_(static_cast<uint32_t>(capacity)) {
    WEFT_CHECK(capacity >= 1 && capacity < kEnd);
    cells_ = std::allocator<Cell>().allocate(capacity);
    for (uint32_t slot = 0; slot < capacity_; ++slot) {
      ::new (static_cast<void*>(&cells_[slot]))
          Cell(slot, slot + 1 < capacity_ ? slot + 1 : kEnd, make);
    }
  }

  ~Slab() {
    std::destroy_n(cells_, capacity_);
    std::allocator<Cell>().deallocate(cells_, capacity_);
  }

  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // A free object and its handle, or nullptr (and *handle untouched) when all are in use.
  [[nodiscard]] T* Allocate(SlabHandle* handle) {
    if (first_free_ == kEnd) return nullptr;
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
    if (handle.slot >= capacity_) return nullptr;
    Cell& cell = cells_[handle.slot];
    // A free slot has an even generation: without the second test, a forged even handle would
    // match.
    if (cell.generation != handle.generation || !IsLive(handle.generation)) return nullptr;
    return &cell.value;
  }
  [[nodiscard]] const T* Get(SlabHandle handle) const {
    return const_cast<Slab*>(this)->Get(handle);
  }

  // Gives the object back; every copy of the handle is stale from now on.
  // REQUIRES: the handle is live.
  void Free(SlabHandle handle) {
    WEFT_CHECK(Get(handle) != nullptr);
    Cell& cell = cells_[handle.slot];
    ++cell.generation;  // odd to even: free; wraps from 2^32 - 1 to 0, which is free as well
    cell.next_free = first_free_;
    first_free_ = handle.slot;
    --size_;
  }

  // The handle under which `object` is live now.
  // REQUIRES: `object` came from this slab and is live.
  SlabHandle HandleOf(const T* object) const {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(object) - reinterpret_cast<std::uintptr_t>(cells_);
    const auto slot = static_cast<uint32_t>(offset / sizeof(Cell));
    WEFT_DCHECK(slot < capacity_ && &cells_[slot].value == object);
    WEFT_DCHECK(IsLive(cells_[slot].generation));
    return {slot, cells_[slot].generation};
  }

  // Calls visit(T&) or visit(SlabHandle, T&) for every live object, in slot order; `visit` may free
  // any object, and may allocate (whether it then meets the new one is unspecified). O(capacity):
  // for teardown and diagnosis.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t slot = 0; slot < capacity_ && size_ > 0; ++slot) {
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
  std::size_t capacity() const { return capacity_; }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == capacity_; }

  // Aborts unless the invariants in the file comment hold. O(capacity).
  void CheckInvariants() const {
    WEFT_CHECK(size_ <= capacity_);
    std::size_t live = 0;
    for (uint32_t slot = 0; slot < capacity_; ++slot) live += IsLive(cells_[slot].generation);
    WEFT_CHECK(live == size_);
    std::size_t free = 0;
    for (uint32_t slot = first_free_; slot != kEnd; slot = cells_[slot].next_free) {
      WEFT_CHECK(slot < capacity_ && !IsLive(cells_[slot].generation));
      WEFT_CHECK(++free <= capacity_);  // else the list has a cycle
    }
    WEFT_CHECK(free == capacity_ - size_);
  }

 private:
  friend class SlabTestPeer;

  static constexpr uint32_t kEnd = 0xFFFFFFFF;  // of the free list
  static constexpr bool IsLive(uint32_t generation) { return generation % 2 == 1; }

  // A power of two up to one cache line, so that small cells never straddle lines and large ones
  // touch as few as possible. Costs at most 63 bytes for each cell.
  static constexpr std::size_t kCellAlignment =
      std::max(alignof(T), std::min(kCacheLineBytes, std::bit_ceil(sizeof(T) + 8)));

  struct alignas(kCellAlignment) Cell {
    template <class Make>
    Cell(uint32_t slot, uint32_t next, Make& make) : next_free(next), value(make(slot)) {}

    uint32_t generation = 0;
    uint32_t next_free;  // Only meaningful while free.
    T value;
  };

  // Constant after construction.
  const uint32_t capacity_;
  Cell* cells_ = nullptr;  // capacity_ of them, all constructed

  uint32_t first_free_ = 0;
  uint32_t size_ = 0;
};

}  // namespace weft
