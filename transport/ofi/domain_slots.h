// The slots of one domain: registered memory for batches, and how many of them may be in use for
// sends.
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

#include "absl/status/status.h"
#include "core/check.h"
#include "transport/link.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/slot_pool.h"
#include "transport/ofi/work.h"

namespace weft {

class DomainSlots {
 public:
  DomainSlots(Registrar* registrar, uint32_t slot_bytes, uint64_t max_bytes, LinkDomainStats* stats)
      : stats_(stats), pool_(registrar, slot_bytes, max_bytes) {}

  uint32_t slot_bytes() const { return pool_.slot_bytes(); }
  // Of sends and receives.
  SlotPool& pool() { return pool_; }

  // Memory for `sends` more send slots, as far as they have it beforehand, and for `receives` more
  // receives. Registers; not for the hot path.
  absl::Status Reserve(uint32_t sends, uint64_t receives);
  void AddSends(uint32_t more);
  void RemoveSends(uint32_t fewer);

  // A send slot, or none (data == nullptr): HasRoomAgain() will tell.
  SendSlot Acquire() {
    Slot* const slot = Take();
    if (slot == nullptr) {
      ran_out_ = true;
      return {};
    }
    ++stats_->send_slots_in_use;
    return {slot->data, slot};
  }
  // Takes a send slot back. REQUIRES: it is on no list.
  void Give(Slot* slot) {
    pool_.Give(slot);
    --stats_->send_slots_in_use;
  }
  // REQUIRES: `slot` was made of what Acquire() gave.
  static Slot* SlotOf(SendSlot slot) {
    auto* const found = static_cast<Slot*>(slot.record);
    // Ours: slots are of this domain
    WEFT_DCHECK(found->data == slot.data && found->kind == WorkKind::kSend);
    return found;
  }
  // nullptr for a slot that has been given back since.
  Slot* FindSend(WorkId id) { return pool_.Find(id); }

  // There was no slot, and HasRoomAgain() was not true since.
  bool ran_out() const { return ran_out_; }
  // There is one again; true once.
  bool HasRoomAgain();

 private:
  // Send slots that have memory beforehand, for each AddSends(). With 8 KiB each, half of what a
  // connection may cost in all.
  static constexpr uint32_t kFirstSends = 4;

  Slot* Take();

  LinkDomainStats* const stats_;
  SlotPool pool_;
  uint32_t asked_ = 0;  // for sends
  uint32_t kept_ = 0;   // of these, with memory beforehand
  bool ran_out_ = false;
};

}  // namespace weft
