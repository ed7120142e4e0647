// The one-sided operations that a connection's user has outstanding: counts and bounds them, and
// gives those that the end of the connection cuts off the reason of that end.
//
// Threads: one engine's. Lifetime: a member of its connection.
// Errors: full is nullptr from Take().
// Invariants: 0 <= in_use <= capacity.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/check.h"
#include "core/grown_array.h"
#include "transport/transport.h"

namespace weft {

class OperationSlots {
 public:
  class Host {
   public:
    // A slot is free again. Comes after the user's OnComplete().
    virtual void OnOperationFree() = 0;

   protected:
    ~Host() = default;
  };

  // REQUIRES: capacity >= 1.
  OperationSlots(Host* host, uint32_t capacity) : host_(host), slots_(capacity) {}
  OperationSlots(const OperationSlots&) = delete;
  OperationSlots& operator=(const OperationSlots&) = delete;

  // What to give to the link in the place of `user`, who is told when it completes; nullptr: full.
  // `weight` >= 1: the operations that it counts for, as a batch counts for all its pieces.
  Operation* Take(Operation* user, uint32_t weight = 1) {
    if (weight > capacity() - in_use_) return nullptr;
    // There is one, or one more: no operation weighs less than one.
    Slot* const slot = first_free_ != nullptr ? first_free_ : &slots_.Grow();
    first_free_ = slot->next_free;
    slot->owner = this;
    slot->user = user;
    slot->weight = weight;
    in_use_ += weight;
    return slot;
  }

  // The link did not take it: its user is not told.
  void Return(Operation* taken) {
    Slot* const slot = static_cast<Slot*>(taken);
    in_use_ -= slot->weight;
    PutBack(slot);
  }

  // Operations that complete with an error from now on complete with `why`.
  void EndWith(const absl::Status& why) { why_ = why; }

  uint32_t in_use() const { return in_use_; }
  uint32_t capacity() const { return static_cast<uint32_t>(slots_.capacity()); }

 private:
  struct Slot final : public Operation {
    void OnComplete(const absl::Status& status) override { owner->Complete(this, status); }

    OperationSlots* owner = nullptr;
    Operation* user = nullptr;
    Slot* next_free = nullptr;
    uint32_t weight = 1;
  };

  void PutBack(Slot* slot) {
    slot->next_free = first_free_;
    first_free_ = slot;
  }

  void Complete(Slot* slot, const absl::Status& status) {
    Operation* const user = slot->user;
    Return(slot);
    user->OnComplete(status.ok() || why_.ok() ? status : why_);
    host_->OnOperationFree();
  }

  Host* const host_;
  GrownArray<Slot> slots_;
  Slot* first_free_ = nullptr;
  uint32_t in_use_ = 0;
  absl::Status why_;
};

}  // namespace weft
