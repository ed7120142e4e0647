// A fixed number of objects, handed out and taken back in O(1), named by handles that go stale.
//
// A handle {slot, generation} can travel to the network card, or to a peer, and come back much
// later, or forged: `Get` finds the object only if exactly this allocation is still live. This
// replaces both maps from id to object and pointers in completion contexts.
//
// Objects are constructed once, when an allocation first needs one more than there ever were, and
// reused: otherwise Allocate and Free run neither constructor nor destructor. The caller resets
// what must not survive from the previous use. So vectors keep their capacity and registered memory
// its registration; and a slab that is made for the most that could be costs the memory of the most
// that there was.
//
// The free list is last-in, first-out: the next Allocate returns the slot that is most likely still
// in cache. Slot and object share their first cache line (no second array is touched), and no
// object of up to 56 bytes straddles two lines. Put the fields used first at the beginning of T.
//
// Threads:     one thread (an engine) at a time.
// Lifetime:    `T*` stays at its address as long as the slab lives; whether the object is still
//              yours is what the handle knows. In a slab on a NearArray (core/near_array.h), which
//              is for thousands of slabs of mostly one object, the first moves when a second is
//              needed: there a `T*` is good until the next Allocate().
// Errors:      a full slab returns nullptr from Allocate, a stale or forged handle from Get.
//              Freeing what is not live is a bug of the caller, and aborts.
// Invariants:  0 <= size <= constructed <= capacity; constructed - size slots are on the free list,
//              each once; the generation of a live slot is odd, of a free slot even.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>
#include <utility>

#include "core/cache_line.h"
#include "core/check.h"
#include "core/function.h"
#include "core/grown_array.h"
#include "core/inline.h"

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

template <class T, template <class> class Array = GrownArray>
class Slab {
 public:
  // Address space for all that the slab will ever use is taken here: capacity * sizeof(cell).
  // REQUIRES: 1 <= capacity < 2^32 - 1.
  explicit Slab(std::size_t capacity) : Slab(capacity, [](uint32_t) { return T(); }) {}

  // Object i is constructed in place from make(i), when it is first needed; T need not be movable.
  // What `make` refers to outlives the slab.
  template <class Make>
  Slab(std::size_t capacity, Make&& make)
      : construct_([make = std::forward<Make>(make)](void* place, uint32_t slot) {
          ::new (place) Cell(slot, make);
        }) {
    // Ours: a constant, or an option that was checked
    WEFT_CHECK(capacity >= 1 && capacity < kEnd);
    cells_.Reserve(capacity);
  }

  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  // A free object and its handle, or nullptr (and *handle untouched) when all are in use.
  [[nodiscard]] T* Allocate(SlabHandle* handle) {
    if (first_free_ == kEnd && !ConstructNext()) [[unlikely]]
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
    if (handle.slot >= cells_.size()) return nullptr;
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
    WEFT_CHECK(Get(handle) != nullptr);  // Ours: it was found, or is what this side has kept
    Cell& cell = cells_[handle.slot];
    ++cell.generation;  // odd to even: free; wraps from 2^32 - 1 to 0, which is free as well
    cell.next_free = first_free_;
    first_free_ = handle.slot;
    --size_;
  }

  // Get() and Free() in one: the object, which stays as it is until the next Allocate(), or nullptr
  // if the handle is not live.
  [[nodiscard]] T* Release(SlabHandle handle) {
    T* const object = Get(handle);
    if (object == nullptr) return nullptr;
    Cell& cell = cells_[handle.slot];
    cell.generation = handle.generation + 1;
    cell.next_free = first_free_;
    first_free_ = handle.slot;
    --size_;
    return object;
  }

  // The handle under which `object` is live now.
  // REQUIRES: `object` came from this slab and is live.
  SlabHandle HandleOf(const T* object) const {
    const auto offset =
        reinterpret_cast<std::uintptr_t>(object) - reinterpret_cast<std::uintptr_t>(cells_.begin());
    const auto slot = static_cast<uint32_t>(offset / sizeof(Cell));
    // Ours: it is of a live object of this slab
    WEFT_DCHECK(slot < cells_.size() && &cells_[slot].value == object);
    WEFT_DCHECK(IsLive(cells_[slot].generation));
    return {slot, cells_[slot].generation};
  }

  // Calls visit(T&) or visit(SlabHandle, T&) for every live object, in slot order; `visit` may free
  // any object, and may allocate (whether it then meets the new one is unspecified).
  // O(constructed): for teardown and diagnosis.
  template <class Visit>
  void ForEach(Visit&& visit) {
    for (uint32_t slot = 0; slot < cells_.size() && size_ > 0; ++slot) {
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
  std::size_t capacity() const { return cells_.capacity(); }
  // How many objects there are, live or free.
  std::size_t constructed() const { return cells_.size(); }
  bool empty() const { return size_ == 0; }
  bool full() const { return size_ == cells_.capacity(); }

  // Aborts unless the invariants in the file comment hold. O(constructed).
  void CheckInvariants() const {
    // Ours: invariants, here and below, which tests ask for
    WEFT_CHECK(size_ <= cells_.size());
    std::size_t live = 0;
    for (const Cell& cell : cells_) live += IsLive(cell.generation);
    WEFT_CHECK(live == size_);  // Ours: as above
    std::size_t free = 0;
    for (uint32_t slot = first_free_; slot != kEnd; slot = cells_[slot].next_free) {
      // Ours: as above; else the list has a cycle
      WEFT_CHECK(slot < cells_.size() && !IsLive(cells_[slot].generation));
      WEFT_CHECK(++free <= cells_.size());
    }
    WEFT_CHECK(free == cells_.size() - size_);  // Ours: as above
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
    Cell(uint32_t slot, Make& make) : value(make(slot)) {}

    uint32_t generation = 0;
    uint32_t next_free = kEnd;  // Only meaningful while free.
    T value;
  };

  // One more free slot. False: there are as many as may be.
  WEFT_COLD bool ConstructNext() {
    if (cells_.size() == cells_.capacity()) return false;
    const auto slot = static_cast<uint32_t>(cells_.size());
    cells_.GrowBy([&](void* place) { construct_(place, slot); });
    first_free_ = slot;
    return true;
  }

  uint32_t first_free_ = kEnd;
  uint32_t size_ = 0;
  Array<Cell> cells_;
  // A Cell at a place, with the object for a slot. Room for a pointer or two in what makes it.
  Function<void(void*, uint32_t), 2 * sizeof(void*)> construct_;
};

}  // namespace weft
