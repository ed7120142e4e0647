// The call slots that one client may name at the server: the call that has each now, and what is
// remembered of its last one.
//
// The memory of a call (arena, messages) is not here: free calls are in the server's pool
// (server_calls.h), and a slot has one only from its request to its reply. So what a connection
// costs a call that comes after a thousand others is this slot. Slot 0 is in the object itself:
// clients use the lowest free one, and those with one call at a time no other.
//
// Threads: the engine's.
// Errors: none; who names a slot beyond size(), or one that is not free, is the caller's business.
// Invariants: size() <= capacity(); `call` has this slot's generation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/grown_array.h"

namespace weft {

class ServerCall;

class CallSlots {
 public:
  struct Slot {
    ServerCall* call = nullptr;  // null: free
    uint32_t generation = 0;     // of the present or last call
    uint32_t early_cancel = 0;   // generation cancelled before it arrived; 0: none
    bool used = false;           // `generation` is of a real call

    // A request may take the slot: it is free, and the generation is newer than that of its last
    // call. (Generations may wrap around: newer is what lies in the half circle ahead.)
    bool IsFreeFor(uint32_t next) const {
      return call == nullptr && (static_cast<int32_t>(next - generation) > 0 || !used);
    }
  };

  // How many there may be: made as they are used. REQUIRES: once; capacity >= 1.
  void Reserve(size_t capacity) {
    capacity_ = static_cast<uint32_t>(capacity);
    if (capacity > 1) more_.Reserve(capacity - 1);
  }
  // One more. REQUIRES: size() < capacity().
  void Grow() {
    if (size_ > 0) more_.Grow();
    ++size_;
  }

  uint32_t size() const { return size_; }
  uint32_t capacity() const { return capacity_; }
  // Null: there is none of that number yet.
  Slot* Find(uint32_t slot) {
    if (slot >= size_) [[unlikely]]
      return nullptr;
    return slot == 0 ? &first_ : &more_[slot - 1];
  }

  // Calls visit(slot) for each that has a call; it may free it.
  template <class Visit>
  void ForEachTaken(Visit&& visit) {
    if (first_.call != nullptr) visit(first_);
    for (Slot& slot : more_) {
      if (slot.call != nullptr) visit(slot);
    }
  }

 private:
  uint32_t size_ = 0;
  uint32_t capacity_ = 0;
  Slot first_;
  GrownArray<Slot> more_;
};

}  // namespace weft
