// A slot that one client may name at the server: the call that has it now, and what is remembered
// of its last one. Connections keep theirs in an array (core/near_array.h), which they make as the
// client uses them.
//
// The memory of a call (arena, messages) is not here: free calls are in the server's pool
// (server_calls.h), and a slot has one only from its request to its reply. So what a connection
// costs a call that comes after a thousand others is this slot. As long as there is one, it is in
// the connection itself: clients use the lowest free one, and those with one call at a time no
// other.
//
// Threads: the engine's.
// Lifetime: a slot stays at its place, but for the first when there is a second.
// Invariants: `call` has this slot's generation.
#pragma once

#include <cstdint>

namespace weft {

class ServerCall;

struct CallSlot {
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

}  // namespace weft
