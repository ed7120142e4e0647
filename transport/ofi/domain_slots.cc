#include "transport/ofi/domain_slots.h"

#include <utility>

#include "core/status.h"

namespace weft {

DomainSlots::DomainSlots(Registrar* registrar, uint32_t usual_bytes, uint32_t wide_bytes,
                         uint64_t max_bytes, LinkDomainStats* stats)
    : has_wide_(wide_bytes > usual_bytes),
      stats_(stats),
      usual_(registrar, usual_bytes, max_bytes - (has_wide_ ? max_bytes / kWideShare : 0)),
      wide_(registrar, has_wide_ ? wide_bytes : usual_bytes, has_wide_ ? max_bytes / kWideShare : 0,
            kFirstWideIndex) {}

absl::Status DomainSlots::Reserve(uint32_t sends, uint64_t receives) {
  const uint64_t kept = uint64_t{kept_} + std::min(sends, kFirstSends);
  const uint64_t in_use = stats_->send_slots_in_use;
  const uint64_t missing = kept > in_use ? kept - in_use : 0;
  if (has_wide_) WEFT_RETURN_IF_ERROR(wide_.Reserve(receives));
  return usual_.Reserve(missing + (has_wide_ ? 0 : receives));
}

void DomainSlots::AddSends(uint32_t more) {
  asked_ += more;
  kept_ += std::min(more, kFirstSends);
}

void DomainSlots::RemoveSends(uint32_t fewer) {
  WEFT_DCHECK(fewer <= asked_);  // Ours: what AddSlots() has added
  asked_ -= fewer;
  kept_ -= std::min(fewer, kFirstSends);
}

Slot* DomainSlots::TakeFrom(SlotPool& pool) {
  if (stats_->send_slots_in_use >= asked_) return nullptr;
  Slot* const slot = pool.Take(WorkKind::kSend);
  if (slot != nullptr || !pool.has_room()) return slot;
  // More are in use than ever before.
  return pool.Reserve(1).ok() ? pool.Take(WorkKind::kSend) : nullptr;
}

bool DomainSlots::HasRoomAgain() {
  const bool within = stats_->send_slots_in_use < asked_;
  const bool usual = usual_ran_out_ && within && usual_.has_room();
  const bool wide = wide_ran_out_ && within && wide_.has_room();
  if (usual) usual_ran_out_ = false;
  if (wide) wide_ran_out_ = false;
  const bool of_link = std::exchange(room_for_wide_, false);
  return usual || wide || of_link;
}

}  // namespace weft
