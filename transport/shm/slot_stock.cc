#include "transport/shm/slot_stock.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "core/check.h"
#include "core/status.h"

namespace weft {

SlotStock::Chunk::~Chunk() {
  if (memory != nullptr) munmap(memory, bytes);
}

SlotStock::~SlotStock() { WEFT_DCHECK(in_use_ == 0); }

absl::Status SlotStock::Add(uint32_t slots) {
  const uint64_t wanted = LimitWith(slots);
  while (in_use_ + free_.size() < wanted) WEFT_RETURN_IF_ERROR(AddChunk());
  asked_ += slots;
  ++connections_;
  return absl::OkStatus();
}

void SlotStock::Remove(uint32_t slots) {
  WEFT_DCHECK(slots <= asked_ && connections_ > 0);
  asked_ -= slots;
  --connections_;
}

absl::Status SlotStock::AddChunk() {
  auto chunk = std::make_unique<Chunk>();
  const size_t bytes = size_t{slot_bytes_} * kSlotsPerChunk;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return StatusFromErrno(errno, "mmap of send slots");
  chunk->memory = static_cast<std::byte*>(memory);
  chunk->bytes = bytes;
  const auto first = static_cast<uint32_t>(chunks_.size()) * kSlotsPerChunk;
  free_.reserve(first + kSlotsPerChunk);
  for (uint32_t i = kSlotsPerChunk; i-- > 0;) {
    ShmSlot& slot = chunk->slots[i];
    slot.data = chunk->memory + size_t{i} * slot_bytes_;
    slot.index = first + i;
    free_.push_back(&slot);
  }
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

ShmSlot* SlotStock::Take() {
  if (in_use_ >= limit() || free_.empty()) return nullptr;
  ShmSlot* const slot = free_.back();
  free_.pop_back();
  slot->in_use = true;
  ++in_use_;
  return slot;
}

void SlotStock::Give(ShmSlot* slot) {
  slot->in_use = false;
  --in_use_;
  free_.push_back(slot);
}

ShmSlot* SlotStock::Of(SendSlot slot) {
  WEFT_CHECK(slot.index / kSlotsPerChunk < chunks_.size());
  ShmSlot* const found = &chunks_[slot.index / kSlotsPerChunk]->slots[slot.index % kSlotsPerChunk];
  WEFT_CHECK(found->in_use && found->data == slot.data);
  return found;
}

}  // namespace weft
