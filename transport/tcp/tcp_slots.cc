#include "transport/tcp/tcp_slots.h"

#include <new>
#include <utility>

#include "core/block_memory.h"
#include "core/poison.h"

namespace weft {
namespace {

// Of the memory, what wide slots may take: one part of so many.
constexpr uint64_t kWideShare = 4;

uint64_t CellBytes(uint32_t slot_bytes) { return sizeof(TcpSlot) + slot_bytes; }

}  // namespace

TcpSlots::TcpSlots(uint32_t usual_bytes, uint32_t wide_bytes, uint64_t max_bytes,
                   LinkDomainStats* stats)
    : stats_(stats) {
  const bool has_wide = wide_bytes > usual_bytes;
  const uint64_t for_wide = has_wide ? max_bytes / kWideShare : 0;
  usual_ = {/*wide=*/false, usual_bytes, (max_bytes - for_wide) / CellBytes(usual_bytes)};
  if (has_wide) wide_ = {/*wide=*/true, wide_bytes, for_wide / CellBytes(wide_bytes)};
}

TcpSlots::~TcpSlots() {
  WEFT_CHECK(stats_->send_slots_in_use == 0);  // Ours: links go before their slots
  for (const Size* size : {&usual_, &wide_}) {
    for (TcpSlot* const slot : size->all) {
      Unpoison(*size, slot);
      slot->~TcpSlot();
      GiveBlock(slot, CellBytes(size->slot_bytes), alignof(TcpSlot), MemoryKind::kSlots);
    }
  }
}

bool TcpSlots::Grow(Size& size) {
  if (size.all.size() >= size.max_slots) return false;
  void* const memory = TakeBlock(CellBytes(size.slot_bytes), alignof(TcpSlot), MemoryKind::kSlots);
  if (memory == nullptr) return false;
  auto* const slot = new (memory) TcpSlot(size.wide);
  size.all.push_back(slot);
  slot->next_free = std::exchange(size.free, slot);
  Poison(size, slot);
  return true;
}

void TcpSlots::Give(TcpSlot* slot) {
  WEFT_DCHECK(!slot->linked());  // Ours: taken off its list first
  Size& size = slot->wide ? wide_ : usual_;
  Poison(size, slot);
  slot->next_free = std::exchange(size.free, slot);
  --stats_->send_slots_in_use;
}

bool TcpSlots::HasRoomAgain() {
  bool has_room = false;
  for (Size* const size : {&usual_, &wide_}) {
    if (!HasNews(*size)) continue;
    size->ran_out = false;
    has_room = true;
  }
  return has_room;
}

void TcpSlots::Poison(const Size& size, TcpSlot* slot) {
  weft::Poison({slot->data(), size.slot_bytes});
}

void TcpSlots::Unpoison(const Size& size, TcpSlot* slot) {
  weft::Unpoison({slot->data(), size.slot_bytes});
}

}  // namespace weft
