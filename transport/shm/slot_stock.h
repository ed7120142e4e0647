// The send slots of an shm domain: private memory, taken in chunks and kept.
//
// A connection asks for as many as its window has, and needs one: framing asks Link::HasRoom()
// before it takes a slot, so that what is sent goes into the ring at once and the slot is free
// again. So there is one for each connection, and some more that all share. A connection whose peer
// does not read holds one, and never another's.
//
// Threads: the engine's.
// Invariants: in use <= limit_, but for slots in use when a connection left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "core/check.h"
#include "transport/link.h"
#include "transport/shm/shm_work.h"

namespace weft {

class SlotStock {
 public:
  // Beside one for each connection: what a user without Link::HasRoom() may have waiting.
  static constexpr uint64_t kShared = 64;

  // `in_use` is kept here; it outlives this.
  SlotStock(uint32_t slot_bytes, uint64_t* in_use) : slot_bytes_(slot_bytes), in_use_(in_use) {}
  ~SlotStock();
  SlotStock(const SlotStock&) = delete;
  SlotStock& operator=(const SlotStock&) = delete;

  // A connection that asks for `slots` comes, or leaves. Add() may take memory, up to limit().
  absl::Status Add(uint32_t slots);
  void Remove(uint32_t slots);
  // How many there would be with `slots` more asked for by one connection more.
  uint64_t LimitWith(uint32_t slots) const {
    return std::min(asked_ + slots, kShared + connections_ + 1);
  }
  uint64_t connections() const { return connections_; }

  // nullptr: all are in use.
  ShmSlot* Take() {
    ShmSlot* const slot = free_;
    if (slot == nullptr || *in_use_ >= limit_) [[unlikely]]
      return nullptr;
    free_ = slot->next_free;
    slot->in_use = true;
    ++*in_use_;
    return slot;
  }
  void Give(ShmSlot* slot) {
    WEFT_DCHECK(slot->in_use);
    slot->in_use = false;
    slot->next_free = free_;
    free_ = slot;
    --*in_use_;
  }
  // REQUIRES: `slot` was made of what Take() gave.
  static ShmSlot* Of(SendSlot slot) {
    auto* const found = static_cast<ShmSlot*>(slot.record);
    WEFT_DCHECK(found->in_use && found->data == slot.data);
    return found;
  }

  bool has_room() const { return *in_use_ < limit_; }

 private:
  // Slots that share a mapping: enough that a mapping is not half empty, few enough that the second
  // connection does not cost much.
  static constexpr uint32_t kSlotsPerChunk = 16;
  struct Chunk {
    ~Chunk();
    std::byte* memory = nullptr;
    size_t bytes = 0;
    ShmSlot slots[kSlotsPerChunk];
  };

  absl::Status AddChunk();

  const uint32_t slot_bytes_;
  uint64_t* const in_use_;
  ShmSlot* free_ = nullptr;  // the first of those; the last that was given
  uint64_t limit_ = 0;       // LimitWith() for those who are there
  uint64_t asked_ = 0;
  uint64_t connections_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace weft
