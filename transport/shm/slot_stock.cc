#include "transport/shm/slot_stock.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "core/check.h"
#include "core/status.h"

namespace weft {

SlotStock::Chunk::~Chunk() {
  if (memory != nullptr) munmap(memory, bytes);
}

SlotStock::~SlotStock() { WEFT_DCHECK(*in_use_ == 0); }

absl::Status SlotStock::Add(uint32_t slots) {
  const uint64_t wanted = LimitWith(slots);
  while (chunks_.size() * kSlotsPerChunk < wanted) WEFT_RETURN_IF_ERROR(AddChunk());
  asked_ += slots;
  ++connections_;
  limit_ = wanted;
  return absl::OkStatus();
}

void SlotStock::Remove(uint32_t slots) {
  WEFT_DCHECK(slots <= asked_ && connections_ > 0);
  asked_ -= slots;
  --connections_;
  limit_ = std::min(asked_, kShared + connections_);
}

absl::Status SlotStock::AddChunk() {
  auto chunk = std::make_unique<Chunk>();
  const size_t bytes = size_t{slot_bytes_} * kSlotsPerChunk;
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return StatusFromErrno(errno, "mmap of send slots");
  chunk->memory = static_cast<std::byte*>(memory);
  chunk->bytes = bytes;
  for (uint32_t i = kSlotsPerChunk; i-- > 0;) {
    ShmSlot& slot = chunk->slots[i];
    slot.data = chunk->memory + size_t{i} * slot_bytes_;
    slot.next_free = free_;
    free_ = &slot;
  }
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

}  // namespace weft
