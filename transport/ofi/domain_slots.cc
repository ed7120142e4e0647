#include "transport/ofi/domain_slots.h"

namespace weft {

absl::Status DomainSlots::Reserve(uint32_t sends, uint64_t receives) {
  const uint64_t kept = uint64_t{kept_} + std::min(sends, kFirstSends);
  const uint64_t in_use = stats_->send_slots_in_use;
  const uint64_t missing = kept > in_use ? kept - in_use : 0;
  return pool_.Reserve(missing + receives);
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

Slot* DomainSlots::Take() {
  if (stats_->send_slots_in_use >= asked_) return nullptr;
  Slot* const slot = pool_.Take(WorkKind::kSend);
  if (slot != nullptr || !pool_.has_room()) return slot;
  // More are in use than ever before.
  return pool_.Reserve(1).ok() ? pool_.Take(WorkKind::kSend) : nullptr;
}

bool DomainSlots::HasRoomAgain() {
  if (!ran_out_ || stats_->send_slots_in_use >= asked_ || !pool_.has_room()) return false;
  ran_out_ = false;
  return true;
}

}  // namespace weft
