// The send slots of one domain, of one or two sizes, and how many may be in use.
//
// Memory comes when more are in use than ever before, and goes with the domain. Wide slots take a
// quarter of it at most.
//
// Threads: the engine's. Lifetime: slots stay where they are; all are given back before this goes.
// Invariants: slots in use <= slots asked for, but for those given up while in use.
#pragma once

#include <cstdint>
#include <vector>

#include "core/check.h"
#include "transport/link.h"
#include "transport/tcp/tcp_work.h"

namespace weft {

class TcpSlots {
 public:
  // `wide_bytes`: there are no wide ones if that is not more than `usual_bytes`.
  TcpSlots(uint32_t usual_bytes, uint32_t wide_bytes, uint64_t max_bytes, LinkDomainStats* stats);
  ~TcpSlots();
  TcpSlots(const TcpSlots&) = delete;
  TcpSlots& operator=(const TcpSlots&) = delete;

  uint32_t usual_bytes() const { return usual_.slot_bytes; }
  uint32_t widest_bytes() const { return has_wide() ? wide_.slot_bytes : usual_.slot_bytes; }

  void Ask(uint32_t more) { asked_ += more; }
  void GiveUp(uint32_t fewer) {
    WEFT_DCHECK(fewer <= asked_);  // Ours: what AddSlots() has added
    asked_ -= fewer;
  }

  // A slot, or none (data == nullptr): HasRoomAgain() will tell.
  SendSlot Take() { return TakeFrom(usual_); }
  SendSlot TakeWide() { return TakeFrom(has_wide() ? wide_ : usual_); }
  static TcpSlot* SlotOf(SendSlot slot) { return static_cast<TcpSlot*>(slot.record); }
  // REQUIRES: on no list.
  void Give(TcpSlot* slot);

  // There was none, and is one again: HasRoomAgain() would be true.
  bool has_news() const { return HasNews(usual_) || HasNews(wide_); }
  // There is one again; true once.
  bool HasRoomAgain();

 private:
  struct Size {
    bool wide = false;
    uint32_t slot_bytes = 0;
    uint64_t max_slots = 0;
    TcpSlot* free = nullptr;
    std::vector<TcpSlot*> all = {};
    bool ran_out = false;  // and HasRoomAgain() was not true since

    bool has_room() const { return free != nullptr || all.size() < max_slots; }
  };

  bool has_wide() const { return wide_.max_slots > 0; }
  bool HasNews(const Size& size) const {
    return size.ran_out && stats_->send_slots_in_use < asked_ && size.has_room();
  }
  SendSlot TakeFrom(Size& size) {
    if (stats_->send_slots_in_use >= asked_ || (size.free == nullptr && !Grow(size))) [[unlikely]] {
      size.ran_out = true;
      return {};
    }
    TcpSlot* const slot = size.free;
    size.free = slot->next_free;
    ++stats_->send_slots_in_use;
    Unpoison(size, slot);
    return {slot->data(), slot};
  }
  static bool Grow(Size& size);
  static void Poison(const Size& size, TcpSlot* slot);
  static void Unpoison(const Size& size, TcpSlot* slot);

  LinkDomainStats* const stats_;
  Size usual_;
  Size wide_;
  uint64_t asked_ = 0;
};

}  // namespace weft
