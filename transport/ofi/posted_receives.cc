#include "transport/ofi/posted_receives.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status PostedReceives::CheckRoom(uint32_t more) const {
  if (uint64_t{target_} + more <= limits_.most_asked) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      target_, " receives are posted, and ", more, " more exceed what the provider takes: ",
      limits_.most_asked, "; use fewer connections or smaller windows"));
}

uint64_t PostedReceives::MissingFor(uint32_t more) const {
  const uint32_t wanted = WantedFor(target_ + more);
  return wanted > posted_ ? wanted - posted_ : 0;
}

bool PostedReceives::Add(uint32_t more) {
  SetTarget(target_ + more);
  TopUp();
  return posted_ >= needed_;
}

void PostedReceives::Remove(uint32_t fewer) {
  WEFT_DCHECK(fewer <= target_);  // Ours: what Add() has added
  SetTarget(target_ - fewer);
  CountWithheld();
}

uint32_t PostedReceives::WantedFor(uint32_t target) const {
  if (target == 0) return 0;
  return std::min(NeededFor(target) + limits_.spare, limits_.most_asked);
}

void PostedReceives::SetTarget(uint32_t target) {
  target_ = target;
  needed_ = NeededFor(target);
  wanted_ = WantedFor(target);
}

void PostedReceives::OnFailed(WorkId id, int error) {
  if (error == FI_ETRUNC && limits_.cut_off_is_filled) return OnDone(id, pool_->slot_bytes());
  Slot* slot = pool_->Find(id);
  if (slot == nullptr || !slot->posted) return;
  --posted_;
  pool_->Give(slot);
  CountWithheld();
}

void PostedReceives::TopUp() {
  while (posted_ < wanted_) {
    Slot* slot = pool_->Take(WorkKind::kReceive);
    if (slot == nullptr || !Post(slot)) break;
  }
  CountWithheld();
}

}  // namespace weft
