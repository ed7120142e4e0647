// Deadlines for one engine: scheduling and cancelling are O(1), allocate nothing, and a poll with
// nothing due costs one compare.
//
// Time is cut into ticks of 2^16 ns (65.5 us, about 1/16 ms). A timer fires in the first Advance at
// or after its deadline rounded up to a tick: never early, late by less than one tick plus the time
// until Advance is called. A finer tick would make idle sleepers wake more often on their way
// through the levels; a coarser one would show in call deadlines, which start at about 1 ms. A
// power of two makes the conversion a shift.
//
// There are 8 levels of 64 slots (Varghese and Lauck, "Hashed and Hierarchical Timing Wheels",
// 1987). A timer is kept at the level of the highest 6-bit digit in which its tick differs from the
// current one: 8 * 6 + 16 bits cover every 64-bit time, so no deadline is too far. Within a level
// no slot is ever behind the current one, so the next slot is the lowest set bit of a word. As the
// time reaches a slot, its timers move to lower levels, at most 7 times in a timer's life.
//
// Threads:     one thread (an engine) at a time.
// Lifetime:    a timer that is destroyed cancels itself; a wheel that is destroyed disarms its
//              timers without firing them. A wheel takes 9 KiB.
// Errors:      none.
// Invariants:  a slot's bit is set exactly if its list is not empty; every timer in a slot has that
//              level and slot for its tick, seen from the current tick; size() counts armed timers.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/clock.h"
#include "core/intrusive_list.h"

namespace weft {

class TimerWheel;
struct TimerWheelTag;

// One deadline at a time. Derive, implement OnTimer, and schedule it on a wheel.
class Timer : private ListNode<TimerWheelTag> {
 public:
  virtual ~Timer() {
    if (armed()) Disarm();
  }

  // From Schedule until just before OnTimer, or until cancelled.
  bool armed() const { return wheel_ != nullptr; }

  // The deadline given to Schedule; only meaningful while armed.
  uint64_t deadline_ns() const { return deadline_ns_; }

 protected:
  Timer() = default;

  // Called from TimerWheel::Advance, no longer armed. May schedule, cancel and destroy any timer,
  // this one included. May not call Advance or destroy the wheel.
  virtual void OnTimer() = 0;

 private:
  friend class TimerWheel;
  friend class IntrusiveList<Timer, TimerWheelTag>;

  void Disarm();

  uint64_t deadline_ns_ = 0;
  TimerWheel* wheel_ = nullptr;
  uint8_t level_ = 0;  // kDueLevel when due or about to fire, then `slot_` is unused
  uint8_t slot_ = 0;
};

class TimerWheel {
 public:
  static constexpr int kTickBits = 16;
  static constexpr uint64_t kTickNs = uint64_t{1} << kTickBits;

  explicit TimerWheel(uint64_t now_ns) : now_tick_(now_ns >> kTickBits) {}
  ~TimerWheel();

  TimerWheel(const TimerWheel&) = delete;
  TimerWheel& operator=(const TimerWheel&) = delete;

  // Arms `timer` for `deadline_ns`; one that is armed already moves there. A deadline in the past
  // fires in the next Advance: from within OnTimer, not in the one under way, so that Advance
  // always ends. kNever (or less than one tick before it) is the same as Cancel.
  // REQUIRES: the timer is not armed on another wheel.
  void Schedule(Timer* timer, uint64_t deadline_ns);

  // Disarms `timer`: it will not fire, even if it is due and others of the same Advance have fired.
  // Nothing to do if not armed.
  // REQUIRES: the timer is not armed on another wheel.
  void Cancel(Timer* timer);

  // Fires every timer whose tick has been reached, and returns how many. Those that were late when
  // scheduled come first, then the others in the order of ticks; within a tick there is no order.
  // A time before that of the last call counts as the same time.
  int Advance(uint64_t now_ns) {
    if (now_ns >= next_ns_) return AdvanceSlowly(now_ns);
    // No slot begins before next_ns_, so the current tick can move without visiting any. It should:
    // timers are filed by their distance from it.
    now_tick_ = std::max(now_tick_, now_ns >> kTickBits);
    return 0;
  }

  // A time before which Advance fires nothing; kNever when no timer is armed. It may be
  // earlier than the first deadline (the start of its slot): an Advance at that time then yields a
  // later one, at most 7 times for each timer.
  uint64_t NextDeadlineNs() const { return next_ns_; }

  // Armed timers.
  std::size_t size() const { return size_; }

  // Aborts unless the invariants in the file comment hold. O(size).
  void CheckInvariants();

 private:
  using TimerList = IntrusiveList<Timer, TimerWheelTag>;

  static constexpr int kDigitBits = 6;
  static constexpr int kSlots = 1 << kDigitBits;
  static constexpr int kLevels = 8;
  static constexpr uint8_t kDueLevel = kLevels;
  static_assert(kLevels * kDigitBits + kTickBits == 64);

  struct Level {
    uint64_t occupied = 0;  // bit i: slots[i] is not empty
    std::array<TimerList, kSlots> slots;
  };

  static uint64_t TickOf(uint64_t deadline_ns);
  static int DigitOf(uint64_t tick, int level);

  int LevelOf(uint64_t tick) const;
  int AdvanceSlowly(uint64_t now_ns);
  void Place(Timer* timer);
  void Remove(Timer* timer);
  void Cascade(int level, int slot);
  void FindNext();
  uint64_t FirstTickOf(int level, int slot) const;

  // Start of the first occupied slot; 0 when `due_` is not empty; kNever when all are empty.
  uint64_t next_ns_ = kNever;
  uint64_t now_tick_;
  uint32_t occupied_levels_ = 0;  // bit i: levels_[i].occupied != 0
  std::size_t size_ = 0;
  bool advancing_ = false;
  TimerList due_;     // fire in the next Advance
  TimerList firing_;  // fire in this Advance; empty outside of it
  std::array<Level, kLevels> levels_;
};

}  // namespace weft
