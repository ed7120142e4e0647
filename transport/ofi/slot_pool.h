// Fixed-size cells of registered memory, for sends and for receives.
//
// Memory comes in chunks of kSlotsPerChunk slots, each registered once when it is made and given
// back only with the pool: connections that come and go cost no registration. Take and Give are
// O(1), last in, first out, and allocate nothing.
//
// Threads: the engine's.
// Lifetime: slots stay at their address until the pool is destroyed; the pool must be destroyed
//   before its domain and after every endpoint that can touch it.
// Errors: RESOURCE_EXHAUSTED from Reserve() names the bound.
// Invariants: free_.size() + slots taken == slots().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/work.h"
#include "transport/operation.h"

namespace weft {

struct Slot : Work {
  Slot() : Work(WorkKind::kSend) {}

  WorkId id() const { return WorkId(kind, index, generation); }

  std::byte* data = nullptr;
  void* descriptor = nullptr;  // of the chunk's registration
  uint32_t index = 0;
  uint32_t generation = 0;     // changes whenever the slot is given back
  uint32_t bytes = 0;          // kSend: how many to send
  bool posted = false;         // in the provider's hands
  Operation* fence = nullptr;  // kSend: Link::SendFence()
};

class SlotPool {
 public:
  // Balances registrations (few) against memory for a single connection (little).
  static constexpr uint32_t kSlotsPerChunk = 64;

  // REQUIRES: slot_bytes is a multiple of 64.
  SlotPool(Registrar* registrar, uint32_t slot_bytes, uint64_t max_bytes);
  ~SlotPool();
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Makes at least `count` slots free. Not for the hot path.
  absl::Status Reserve(uint64_t count);

  // nullptr when none is free.
  Slot* Take(WorkKind kind) {
    if (free_.empty()) return nullptr;
    Slot* slot = free_.back();
    free_.pop_back();
    slot->kind = kind;
    return slot;
  }

  // Every id of the slot is stale afterwards. REQUIRES: taken, and on no list.
  void Give(Slot* slot) {
    WEFT_DCHECK(!slot->linked());  // Ours: taken off its list first
    ++slot->generation;
    slot->link = nullptr;
    slot->posted = false;
    slot->fence = nullptr;
    free_.push_back(slot);
  }

  // nullptr when there is no such slot.
  Slot* At(uint32_t index) {
    const uint32_t chunk = index / kSlotsPerChunk;
    return chunk < chunks_.size() ? &chunks_[chunk]->slots[index % kSlotsPerChunk] : nullptr;
  }
  // The slot if `id` is its present one.
  Slot* Find(WorkId id) {
    Slot* slot = At(id.index());
    return slot != nullptr && slot->generation == id.generation() ? slot : nullptr;
  }

  // A slot is free, or one more chunk is within the bound.
  bool has_room() const {
    return !free_.empty() || (chunks_.size() + 1) * chunk_bytes() <= max_bytes_;
  }

  uint32_t slot_bytes() const { return slot_bytes_; }
  uint32_t slots() const { return static_cast<uint32_t>(chunks_.size()) * kSlotsPerChunk; }

 private:
  struct Chunk {
    ~Chunk();
    std::byte* memory = nullptr;
    size_t bytes = 0;
    RegistrationPtr registration;
    Slot slots[kSlotsPerChunk];
  };

  absl::Status AddChunk();
  uint64_t chunk_bytes() const { return uint64_t{slot_bytes_} * kSlotsPerChunk; }

  // Constant after construction.
  Registrar* const registrar_;
  const uint32_t slot_bytes_;
  const uint64_t max_bytes_;

  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<Slot*> free_;  // capacity for all slots: Give() never allocates
};

}  // namespace weft
