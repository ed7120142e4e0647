// The slots of one domain: registered memory for batches, of one or two sizes, and how many of them
// may be in use for sends.
//
// Usual slots hold small batches. Where there are wide ones, large batches and all receives use
// those; else everything uses the usual ones.
//
// Connections ask for send slots when they open (AddSends) and give them up when they close. Memory
// there is for the first few of each connection, and for more as soon as more are in use than ever
// before: a connection that is not pressed sends one batch a turn.
//
// Threads: the engine's.
// Lifetime: the registrar outlives this; this outlives every endpoint that uses a slot of it.
// Errors: RESOURCE_EXHAUSTED from Reserve() names the bound of memory that was hit.
// Invariants: slots in use <= slots asked for, but for those given up while in use. There is memory
//   for `kept` slots, kFirstSends for each AddSends().
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "core/check.h"
#include "transport/link.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/slot_pool.h"
#include "transport/ofi/work.h"

namespace weft {

class DomainSlots {
 public:
  // `wide_bytes`: of wide slots; there are none if that is not more than `usual_bytes`.
  DomainSlots(Registrar* registrar, uint32_t usual_bytes, uint32_t wide_bytes, uint64_t max_bytes,
              LinkDomainStats* stats);

  uint32_t usual_bytes() const { return usual_.slot_bytes(); }
  // Of receives and of the largest send.
  uint32_t widest_bytes() const { return has_wide_ ? wide_.slot_bytes() : usual_.slot_bytes(); }
  SlotPool& receive_pool() { return has_wide_ ? wide_ : usual_; }
  // Whether the slot of this index is wide.
  static bool IsWide(uint32_t index) { return index >= kFirstWideIndex; }

  // Memory for `sends` more send slots, as far as they have it beforehand, and for `receives` more
  // receives. Registers; not for the hot path.
  absl::Status Reserve(uint32_t sends, uint64_t receives);
  void AddSends(uint32_t more);
  void RemoveSends(uint32_t fewer);

  // A send slot, or none (data == nullptr): HasRoomAgain() will tell.
  SendSlot Acquire() { return AcquireFrom(usual_, &usual_ran_out_); }
  SendSlot AcquireWide() {
    return has_wide_ ? AcquireFrom(wide_, &wide_ran_out_) : AcquireFrom(usual_, &usual_ran_out_);
  }
  // Takes a send slot back. REQUIRES: it is on no list.
  void Give(Slot* slot) {
    if (IsWide(slot->index)) [[unlikely]] {
      wide_.Give(slot);
    } else {
      usual_.Give(slot);
    }
    --stats_->send_slots_in_use;
  }
  // REQUIRES: `slot` was made of what Acquire() or AcquireWide() gave.
  static Slot* SlotOf(SendSlot slot) {
    auto* const found = static_cast<Slot*>(slot.record);
    // Ours: slots are of this domain
    WEFT_DCHECK(found->data == slot.data && found->kind == WorkKind::kSend);
    return found;
  }
  // nullptr for a slot that has been given back since.
  Slot* FindSend(WorkId id) { return (IsWide(id.index()) ? wide_ : usual_).Find(id); }

  // A link that had no room for a wide send has room again.
  void NoteRoomForWide() { room_for_wide_ = true; }

  // There was no slot, or there was a NoteRoomForWide(), and HasRoomAgain() was not true since.
  bool ran_out() const { return usual_ran_out_ || wide_ran_out_ || room_for_wide_; }
  // There is one again; true once.
  bool HasRoomAgain();

 private:
  // Send slots that have memory beforehand, for each AddSends(). With 8 KiB each, half of what a
  // connection may cost in all.
  static constexpr uint32_t kFirstSends = 4;
  // Wide slots are those from this index on.
  static constexpr uint32_t kFirstWideIndex = 1 << 29;
  // Of the memory, what wide slots may take: one part of so many.
  static constexpr uint64_t kWideShare = 4;

  SendSlot AcquireFrom(SlotPool& pool, bool* ran_out) {
    Slot* const slot = TakeFrom(pool);
    if (slot == nullptr) {
      *ran_out = true;
      return {};
    }
    ++stats_->send_slots_in_use;
    return {slot->data, slot};
  }
  Slot* TakeFrom(SlotPool& pool);

  // Constant after construction.
  const bool has_wide_;
  LinkDomainStats* const stats_;

  SlotPool usual_;
  SlotPool wide_;       // empty without has_wide_
  uint32_t asked_ = 0;  // for sends
  uint32_t kept_ = 0;   // of these, with memory beforehand
  bool usual_ran_out_ = false;
  bool wide_ran_out_ = false;
  bool room_for_wide_ = false;
};

}  // namespace weft
