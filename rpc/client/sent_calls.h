// The call slots of one open connection: who waits for which reply.
//
// A slot belongs to its call until the reply comes. When the call ends earlier, by its deadline,
// the slot is abandoned: the peer may still use its own, so the slot is free again only when the
// reply comes or the connection ends. The server is told by a cancel. One that finds no room now is
// owed.
//
// Some slots are kept for control calls, so that they never wait for the reply to another call; and
// background calls never have all, so that others do not wait for theirs.
//
// Threads: the engine's. Lifetime: owns the slots, not the calls.
// Errors: a reply that names no slot in use finds none.
// Invariants: slots in use = sent calls + abandoned slots. A call in a slot is kSent and knows the
//   slot. Only abandoned slots owe cancels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "core/inline.h"
#include "core/intrusive_list.h"
#include "core/near_array.h"
#include "core/slab.h"
#include "rpc/client/client_call.h"
#include "rpc/wire/service.h"

namespace weft {

class SentCalls {
 public:
  // What the client keeps for a request under way.
  struct Slot {
    ClientCall* call = nullptr;   // null: abandoned
    uint64_t message_number = 0;  // of the request on the connection
    bool cancel_owed = false;     // abandoned, and the server does not know yet
    bool background = false;      // of a call of that priority
  };

  // A connection has opened, on which `most` calls may be under way, and as many control calls more
  // as `control`. REQUIRES: not open; most >= 1.
  void Open(uint32_t most, uint32_t control = 0) {
    slots_.emplace(most + control);
    most_ = most;
    most_background_ = most - std::min(most - 1, most / kPartKeptFromBackground + 1);
  }

  // --- every call. REQUIRES: open ---------------------------------------------------------------

  // A slot, to be filled with Fill() or given back before anything else. Null: as many are in
  // use as kNormal calls may have.
  WEFT_INLINE Slot* Take(SlabHandle* handle) {
    if (slots_->size() >= most_) [[unlikely]]
      return nullptr;
    return slots_->Allocate(handle);
  }
  WEFT_INLINE void GiveBack(SlabHandle handle) { slots_->Free(handle); }
  // The request is committed, as message `number` of the connection.
  WEFT_INLINE static void Fill(Slot* slot, SlabHandle handle, ClientCall& call, uint64_t number) {
    *slot = {&call, number, false, false};
    call.slot = handle;
    call.state = ClientCall::State::kSent;
  }
  // A reply has come: the slot, which is free and stays as it is until the next Take(). Null: there
  // is no such call. For an abandoned one OnLateReply() follows.
  WEFT_INLINE const Slot* Release(SlabHandle handle) {
    const Slot* const slot = slots_->Release(handle);
    if (slot != nullptr && slot->background) [[unlikely]]
      --background_;
    return slot;
  }

  // --- calls of any priority --------------------------------------------------------------------

  // Take() and Fill() for those.
  Slot* TakeFor(Priority priority, SlabHandle* handle) {
    if (priority == Priority::kControl) return slots_->Allocate(handle);
    if (priority == Priority::kBackground && background_ >= most_background_) return nullptr;
    return Take(handle);
  }
  void FillFor(Slot* slot, SlabHandle handle, ClientCall& call, uint64_t number) {
    Fill(slot, handle, call, number);
    slot->background = call.priority == Priority::kBackground;
    background_ += slot->background;
  }

  // --- calls that end before their reply --------------------------------------------------------

  // `send_cancel(handle)` tells the server. It returns false if there is no room now.
  // REQUIRES: the call is in a slot.
  template <class SendCancel>
  void Abandon(ClientCall& call, SendCancel&& send_cancel) {
    Slot& slot = *slots_->Get(call.slot);
    slot.call = nullptr;
    slot.cancel_owed = !send_cancel(call.slot);
    ++abandoned_;
    cancels_owed_ += slot.cancel_owed;
  }
  bool owes_cancels() const { return cancels_owed_ > 0; }
  template <class SendCancel>
  void SendOwedCancels(SendCancel&& send_cancel) {
    slots_->ForEach([&](SlabHandle handle, Slot& slot) {
      if (!slot.cancel_owed || !send_cancel(handle)) return;
      slot.cancel_owed = false;
      --cancels_owed_;
    });
  }
  // There is such a slot, and its call has ended. REQUIRES: open.
  bool IsAbandoned(SlabHandle handle) const {
    const Slot* const slot = slots_->Get(handle);
    return slot != nullptr && slot->call == nullptr;
  }
  // REQUIRES: `slot` is of Release(), and its call is null.
  void OnLateReply(const Slot& slot) {
    --abandoned_;
    cancels_owed_ -= slot.cancel_owed;
  }

  // --- loss -------------------------------------------------------------------------------------

  // The connection is gone, and with it all slots: takes the calls out, those apart whose request
  // has surely not been sent (Connection::first_unsent()). Nothing to do if not open.
  void Close(uint64_t first_unsent, IntrusiveList<ClientCall>* unsent,
             IntrusiveList<ClientCall>* sent);

  uint32_t in_use() const { return slots_ ? static_cast<uint32_t>(slots_->size()) : 0; }
  uint32_t abandoned() const { return abandoned_; }
  // No call of priority kNormal finds a slot. REQUIRES: open.
  bool full() const { return slots_->size() >= most_; }
  void CheckInvariants();

 private:
  // One slot in so many, and one, background calls leave to others.
  static constexpr uint32_t kPartKeptFromBackground = 8;

  uint32_t most_ = 0;        // while open: calls, but for control calls
  uint32_t background_ = 0;  // slots of such calls; <= most_background_
  // The first slot stands in here: it shares the lines of the connection that has this.
  std::optional<Slab<Slot, NearArray>> slots_;  // while open
  uint32_t most_background_ = 0;
  uint32_t abandoned_ = 0;
  uint32_t cancels_owed_ = 0;
};

}  // namespace weft
