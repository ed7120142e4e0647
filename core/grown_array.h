// An array of a fixed capacity whose elements are constructed one after the other, when they are
// first needed, and stay: for tables that are made for the most that could be, of which most users
// need little.
//
// All memory is reserved at once, so elements never move and growing never allocates. What is
// reserved and was never needed is never touched: where the allocator has it fresh from the kernel,
// as it has large tables, it costs addresses, and no memory.
//
// Threads:     one thread at a time.
// Lifetime:    elements live from Grow() until the array goes, at their address.
// Errors:      growing beyond the capacity is a bug of the caller, and aborts.
// Invariants:  the first size() elements are constructed, size() <= capacity().
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#include "core/check.h"

namespace weft {

template <class T>
class GrownArray {
 public:
  // Nothing yet: Reserve() follows.
  GrownArray() = default;
  explicit GrownArray(std::size_t capacity) { Reserve(capacity); }
  ~GrownArray() {
    std::destroy_n(elements_, size_);
    if (elements_ != nullptr) std::allocator<T>().deallocate(elements_, capacity_);
  }
  GrownArray(const GrownArray&) = delete;
  GrownArray& operator=(const GrownArray&) = delete;

  // REQUIRES: once.
  void Reserve(std::size_t capacity) {
    WEFT_CHECK(elements_ == nullptr);
    elements_ = std::allocator<T>().allocate(capacity);
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
};

}  // namespace weft
