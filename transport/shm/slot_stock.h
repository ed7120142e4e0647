// The send slots of an shm domain: private memory, taken in chunks and kept.
//
// A connection asks for as many as its window has, and needs one: framing asks Link::HasRoom()
// before it takes a slot, so that what is sent goes into the ring at once and the slot is free
// again. So there is one for each connection, and some more that all share. A connection whose peer
// does not read holds one, and never another's.
//
// Threads: the engine's.
// Invariants: in_use() <= limit(), but for slots in use when a connection left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "transport/link.h"
#include "transport/shm/shm_work.h"

namespace weft {

class SlotStock {
 public:
  // Beside one for each connection: what a user without Link::HasRoom() may have waiting.
  static constexpr uint64_t kShared = 64;

  explicit SlotStock(uint32_t slot_bytes) : slot_bytes_(slot_bytes) {}
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
  ShmSlot* Take();
  void Give(ShmSlot* slot);
  // REQUIRES: `slot` is what Take() gave.
  ShmSlot* Of(SendSlot slot);

  uint64_t in_use() const { return in_use_; }
  uint64_t limit() const { return std::min(asked_, kShared + connections_); }

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
  uint64_t asked_ = 0;
  uint64_t connections_ = 0;
  uint64_t in_use_ = 0;
  std::vector<std::unique_ptr<Chunk>> chunks_;
  std::vector<ShmSlot*> free_;  // capacity for all: Give() never allocates
};

}  // namespace weft
