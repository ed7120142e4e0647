// A GrownArray (core/grown_array.h) of small values whose first element is inside of it, beside
// what else its owner has.
//
// For owners of which there are thousands, and which mostly need one element: as long as there is
// no second, it costs no line and no page of its own. With the second all move to memory for as
// many as may be, and stay there.
//
// Threads:    one thread at a time.
// Lifetime:   an element stays at its address once there are two; the first moves when the second
//             is made.
// Errors:     growing beyond the capacity is a bug of the caller, and aborts.
// Invariants: the first size() elements are constructed, size() <= capacity().
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/inline.h"

namespace weft {

template <class T>
class NearArray {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  // Nothing yet: Reserve() follows.
  NearArray() = default;
  ~NearArray() {
    if (size_ > 1) std::allocator<T>().deallocate(elements_, capacity_);
  }
  NearArray(const NearArray&) = delete;
  NearArray& operator=(const NearArray&) = delete;

  // REQUIRES: once; capacity >= 1.
  void Reserve(std::size_t capacity) {
    WEFT_CHECK(capacity_ == 0 && capacity >= 1);
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
    WEFT_CHECK(size_ < capacity_);
    if (size_ == 1) MoveOut();
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
  WEFT_COLD void MoveOut() {
    T* const many = std::allocator<T>().allocate(capacity_);
    ::new (static_cast<void*>(many)) T(elements_[0]);
    elements_ = many;
  }

  T* elements_ = reinterpret_cast<T*>(first_);
  std::size_t size_ = 0;
  std::size_t capacity_ = 0;
  alignas(T) std::byte first_[sizeof(T)];
};

}  // namespace weft
