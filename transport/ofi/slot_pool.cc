#include "transport/ofi/slot_pool.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "core/block_memory.h"
#include "core/status.h"

namespace weft {

SlotPool::SlotPool(Registrar* registrar, uint32_t slot_bytes, uint64_t max_bytes)
    : registrar_(registrar), slot_bytes_(slot_bytes), max_bytes_(max_bytes) {
  WEFT_CHECK(slot_bytes % 64 == 0 && slot_bytes > 0);  // Ours: options are checked before
}

SlotPool::~SlotPool() {
  for (const auto& chunk : chunks_) {
    registrar_->Close(std::move(chunk->registration));
  }
}

SlotPool::Chunk::~Chunk() {
  if (memory != nullptr) GivePages(memory, bytes, MemoryKind::kSlots);
}

absl::Status SlotPool::Reserve(uint64_t count) {
  while (free_.size() < count) WEFT_RETURN_IF_ERROR(AddChunk());
  return absl::OkStatus();
}

absl::Status SlotPool::AddChunk() {
  if ((chunks_.size() + 1) * chunk_bytes() > max_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("slot pool: ", slots(), " slots of ", slot_bytes_,
                     " bytes, and no more fit into max_pool_bytes=", max_bytes_,
                     "; raise it, or use fewer connections or smaller windows"));
  }
  auto chunk = std::make_unique<Chunk>();
  void* const memory = TakePages(chunk_bytes(), MemoryKind::kSlots);
  if (memory == nullptr) {
    if (!HasMemoryHooks()) return StatusFromErrno(errno, "mmap of a slot chunk");
    return absl::ResourceExhaustedError(absl::StrCat("MemoryHooks::take has no ", chunk_bytes(),
                                                     " bytes for ", kSlotsPerChunk, " slots"));
  }
  chunk->memory = static_cast<std::byte*>(memory);
  chunk->bytes = chunk_bytes();
  WEFT_ASSIGN_OR_RETURN(chunk->registration,
                        registrar_->OpenForMessages({chunk->memory, chunk->bytes}));
  void* descriptor = fi_mr_desc(chunk->registration.get());
  const uint32_t first = slots();
  free_.reserve(first + kSlotsPerChunk);
  for (uint32_t i = kSlotsPerChunk; i-- > 0;) {
    Slot& slot = chunk->slots[i];
    slot.index = first + i;
    slot.data = chunk->memory + size_t{i} * slot_bytes_;
    slot.descriptor = descriptor;
    free_.push_back(&slot);
  }
  chunks_.push_back(std::move(chunk));
  return absl::OkStatus();
}

}  // namespace weft
