// A GrownArray (core/grown_array.h) of small values whose first element is inside of it, beside
// what else its owner has.
//
// For owners of which there are thousands, and which mostly need one element: as long as there is
// no second, it costs no line and no page of its own. With the second all move to memory for as
// many as may be, and stay there.
//
// Threads, errors, invariants: those of a GrownArray.
// Lifetime: an element stays at its address once there are two; the first moves when the second is
//           made.
#pragma once

#include <cstddef>
#include <new>
#include <type_traits>

#include "core/block_memory.h"
#include "core/grown_array.h"
#include "core/inline.h"

namespace weft {

// One element in itself, or all outside.
template <class T>
class NearMemory {
 public:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

  T* Reserve(std::size_t /*capacity*/) { return first(); }
  T* MakeRoom(T* elements, std::size_t size, std::size_t capacity) {
    return size == 1 ? MoveOut(*elements, capacity) : elements;
  }
  void Release(T* elements, std::size_t capacity) {
    if (elements != nullptr && elements != first()) GiveTable(elements, capacity);
  }

 private:
  WEFT_COLD static T* MoveOut(const T& first, std::size_t capacity) {
    T* const many = TakeTable<T>(capacity);
    ::new (static_cast<void*>(many)) T(first);
    return many;
  }

  T* first() { return reinterpret_cast<T*>(first_); }

  alignas(T) std::byte first_[sizeof(T)];
};

template <class T>
using NearArray = ArrayIn<T, NearMemory<T>>;

}  // namespace weft
