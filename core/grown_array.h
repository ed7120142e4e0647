// An array of a fixed capacity whose elements are constructed one after the other, when they are
// first needed, and stay: for tables that are made for the most that could be, of which most users
// need little.
//
// Where the elements are is the Memory's business:
//
//   GrownArray           all memory is reserved at once, so elements never move and growing never
//                        allocates. What is reserved and was never needed is never touched: where
//                        the allocator has it fresh from the kernel, as it has large tables, it
//                        costs addresses, and no memory.
//   NearArray            the first element is inside of the array (near_array.h).
//
// Threads:     one thread at a time.
// Lifetime:    elements live from Grow() until the array goes; for their address see above.
// Errors:      growing beyond the capacity is a bug of the caller, and aborts.
// Invariants:  the first size() elements are constructed, size() <= capacity().
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "core/block_memory.h"
#include "core/check.h"

namespace weft {

// Memory says where `capacity` elements of type T are:
//
//   T* Reserve(capacity)                    the place for the first, from the beginning
//   T* MakeRoom(elements, size, capacity)   before one more than `size` is constructed: where they
//                                           are from now on
//   void Release(elements, capacity)        they are destroyed; null: nothing was reserved
template <class T, class Memory>
class ArrayIn {
 public:
  // Nothing yet: Reserve() follows.
  ArrayIn() = default;
  explicit ArrayIn(std::size_t capacity) { Reserve(capacity); }
  ~ArrayIn() {
    std::destroy_n(elements_, size_);
    memory_.Release(elements_, capacity_);
  }
  ArrayIn(const ArrayIn&) = delete;
  ArrayIn& operator=(const ArrayIn&) = delete;

  // REQUIRES: once.
  void Reserve(std::size_t capacity) {
    WEFT_CHECK(elements_ == nullptr);  // Ours: once, when its owner is made
    elements_ = memory_.Reserve(capacity);
    capacity_ = capacity;
  }

  // Constructs the next element.
  template <class... Args>
  T& Grow(Args&&... args) {
    return GrowBy([&](void* place) { ::new (place) T(std::forward<Args>(args)...); });
  }
  // The same by construct(place), which constructs a T there.
  template <class Construct>
  T& GrowBy(Construct&& construct) {
    WEFT_CHECK(size_ < capacity_);  // Ours: a slab that is full is found to be so before
    elements_ = memory_.MakeRoom(elements_, size_, capacity_);
    construct(static_cast<void*>(elements_ + size_));
    return elements_[size_++];
  }

  // REQUIRES: i < size().
  T& operator[](std::size_t i) { return elements_[i]; }
  const T& operator[](std::size_t i) const { return elements_[i]; }

  T* begin() { return elements_; }
  T* end() { return elements_ + size_; }
  const T* begin() const { return elements_; }
  const T* end() const { return elements_ + size_; }

  std::size_t size() const { return size_; }
  std::size_t capacity() const { return capacity_; }

 private:
  T* elements_ = nullptr;
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  [[no_unique_address]] Memory memory_;  // behind what every access reads
};

// Elements outside of the array, for all of the capacity.
template <class T>
class ReservedMemory {
 public:
  static T* Reserve(std::size_t capacity) { return TakeTable<T>(capacity); }
  static T* MakeRoom(T* elements, std::size_t, std::size_t) { return elements; }
  static void Release(T* elements, std::size_t capacity) {
    if (elements != nullptr) GiveTable(elements, capacity);
  }
};

template <class T>
using GrownArray = ArrayIn<T, ReservedMemory<T>>;

}  // namespace weft
