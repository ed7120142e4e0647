// The call slots that one client may name at the server: the call that has each now, and what is
// remembered of its last one.
//
// The memory of a call (arena, messages) is not here: free calls are in the server's pool
// (server_calls.h), and a slot has one only from its request to its reply. So what a connection
// costs a call that comes after a thousand others is this slot. As long as there is one, it is in
// the object itself: clients use the lowest free one, and those with one call at a time no other.
//
// Threads: the engine's.
// Lifetime: a slot stays at its place, but for the first when there is a second (near_array.h).
// Errors: none; who names a slot beyond size(), or one that is not free, is the caller's business.
// Invariants: size() <= capacity(); `call` has this slot's generation.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/near_array.h"

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
  void Reserve(size_t capacity) { slots_.Reserve(capacity); }
  // One more. REQUIRES: size() < capacity().
  void Grow() { slots_.Grow(); }

  size_t size() const { return slots_.size(); }
  size_t capacity() const { return slots_.capacity(); }
  // REQUIRES: slot < size().
  Slot& operator[](uint32_t slot) { return slots_[slot]; }

  // Calls visit(slot) for each that has a call; it may free it.
  template <class Visit>
  void ForEachTaken(Visit&& visit) {
    for (Slot& slot : slots_) {
      if (slot.call != nullptr) visit(slot);
    }
  }

 private:
  NearArray<Slot> slots_;
};

}  // namespace weft
