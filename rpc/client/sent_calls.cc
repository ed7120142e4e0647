#include "rpc/client/sent_calls.h"

#include "core/check.h"

namespace weft {

void SentCalls::Close(uint64_t first_unsent, IntrusiveList<ClientCall>* unsent,
                      IntrusiveList<ClientCall>* sent) {
  if (!slots_) return;
  slots_->ForEach([&](Slot& slot) {
    if (slot.call == nullptr) return;
    (slot.message_number >= first_unsent ? unsent : sent)->PushBack(slot.call);
  });
  slots_.reset();
  background_ = 0;
  abandoned_ = 0;
  cancels_owed_ = 0;
}

void SentCalls::CheckInvariants() {
  if (!slots_) {
    // Ours: invariants, which tests ask for
    WEFT_CHECK(background_ == 0 && abandoned_ == 0 && cancels_owed_ == 0);
    return;
  }
  slots_->CheckInvariants();
  uint32_t calls = 0;
  uint32_t owed = 0;
  uint32_t background = 0;
  slots_->ForEach([&](SlabHandle handle, Slot& slot) {
    owed += slot.cancel_owed;
    background += slot.background;
    if (slot.call == nullptr) return;
    ++calls;
    // Ours: invariants, which tests ask for
    WEFT_CHECK(slot.call->slot == handle && slot.call->state == ClientCall::State::kSent);
    WEFT_CHECK(!slot.cancel_owed);
  });
  // Ours: invariants, which tests ask for
  WEFT_CHECK(in_use() == calls + abandoned_ && owed == cancels_owed_);
  WEFT_CHECK(background == background_ && background_ <= most_background_);
}

}  // namespace weft
