// A slab (core/slab.h) whose first object is inside of it, beside what else its owner has.
//
// For owners of which there are thousands, and which mostly have one object in use: that one then
// costs no line and no page of its own. It is the one handed out first, whenever it is free; the
// others come from a slab. Handles are as a slab's: {slot, generation}, odd while live.
//
// Threads, lifetime of objects, errors: as core/slab.h.
// Invariants: started() or empty; the first object's generation is odd while it is live.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "core/check.h"
#include "core/inline.h"
#include "core/slab.h"

namespace weft {

template <class T>
class NearSlab {
 public:
  NearSlab() = default;
  NearSlab(const NearSlab&) = delete;
  NearSlab& operator=(const NearSlab&) = delete;

  // Room for `capacity` objects from now on. REQUIRES: !started(), 1 <= capacity < 2^32 - 1.
  void Start(std::size_t capacity) {
    WEFT_CHECK(!started_ && capacity >= 1);
    started_ = true;
    if (capacity > 1) rest_.emplace(capacity - 1);
  }
  // As new: every handle is stale, and may be given out again after the next Start().
  void Clear() {
    rest_.reset();
    first_ = T();
    generation_ = 0;
    started_ = false;
  }
  bool started() const { return started_; }

  // REQUIRES of the following: started().
  [[nodiscard]] WEFT_INLINE T* Allocate(SlabHandle* handle) {
    if (IsLive(generation_)) {
      T* const object = rest_ ? rest_->Allocate(handle) : nullptr;
      if (object != nullptr) ++handle->slot;
      return object;
    }
    *handle = {0, ++generation_};
    return &first_;
  }
  [[nodiscard]] T* Get(SlabHandle handle) {
    if (handle.slot == 0) return IsFirst(handle.generation) ? &first_ : nullptr;
    return rest_ ? rest_->Get(Further(handle)) : nullptr;
  }
  // REQUIRES: the handle is live.
  void Free(SlabHandle handle) { WEFT_CHECK(Release(handle) != nullptr); }
  // Get() and Free() in one.
  [[nodiscard]] WEFT_INLINE T* Release(SlabHandle handle) {
    if (handle.slot != 0) return rest_ ? rest_->Release(Further(handle)) : nullptr;
    if (!IsFirst(handle.generation)) return nullptr;
    ++generation_;  // odd to even: free; wraps from 2^32 - 1 to 0, which is free as well
    return &first_;
  }

  // Calls visit(T&) or visit(SlabHandle, T&) for every live object, in slot order; `visit` may free
  // any object.
  template <class Visit>
  void ForEach(Visit&& visit) {
    if (IsLive(generation_)) Show({0, generation_}, first_, visit);
    if (!rest_) return;
    rest_->ForEach([&](SlabHandle handle, T& object) {
      Show({handle.slot + 1, handle.generation}, object, visit);
    });
  }

  std::size_t size() const { return (rest_ ? rest_->size() : 0) + IsLive(generation_); }
  void CheckInvariants() const {
    WEFT_CHECK(started_ || (!rest_ && !IsLive(generation_)));
    if (rest_) rest_->CheckInvariants();
  }

 private:
  static bool IsLive(uint32_t generation) { return generation % 2 == 1; }
  static SlabHandle Further(SlabHandle handle) { return {handle.slot - 1, handle.generation}; }
  bool IsFirst(uint32_t generation) const {
    return generation == generation_ && IsLive(generation);
  }

  template <class Visit>
  static void Show(SlabHandle handle, T& object, Visit& visit) {
    if constexpr (std::is_invocable_v<Visit&, SlabHandle, T&>) {
      visit(handle, object);
    } else {
      visit(object);
    }
  }

  uint32_t generation_ = 0;
  bool started_ = false;
  T first_{};
  std::optional<Slab<T>> rest_;
};

}  // namespace weft
