#include "core/timer_wheel.h"

#include "core/check.h"

namespace weft {

void Timer::Disarm() { wheel_->Cancel(this); }

TimerWheel::~TimerWheel() {
  WEFT_CHECK(!advancing_);  // Ours: no timer of an engine ends that engine
  const auto disarm = [](TimerList& list) {
    while (Timer* timer = list.PopFront()) timer->wheel_ = nullptr;
  };
  disarm(due_);
  for (Level& level : levels_) {
    for (TimerList& slot : level.slots) disarm(slot);
  }
}

// Rounded up: a timer never fires early. The last partial tick of time has no next one; Schedule
// keeps deadlines out of it.
uint64_t TimerWheel::TickOf(uint64_t deadline_ns) {
  return (deadline_ns >> kTickBits) + (deadline_ns % kTickNs != 0);
}

int TimerWheel::DigitOf(uint64_t tick, int level) {
  return static_cast<int>(tick >> (level * kDigitBits)) & (kSlots - 1);
}

// The level of the highest digit in which `tick` differs from the current one.
// REQUIRES: tick > now_tick_.
int TimerWheel::LevelOf(uint64_t tick) const {
  return (static_cast<int>(std::bit_width(tick ^ now_tick_)) - 1) / kDigitBits;
}

void TimerWheel::Schedule(Timer* timer, uint64_t deadline_ns) {
  // Ours: a timer is of one engine
  WEFT_DCHECK(timer->wheel_ == nullptr || timer->wheel_ == this);
  Cancel(timer);
  if (deadline_ns > kNever - kTickNs) return;
  timer->deadline_ns_ = deadline_ns;
  timer->wheel_ = this;
  ++size_;
  Place(timer);
  FindNext();
}

void TimerWheel::Cancel(Timer* timer) {
  if (!timer->armed()) return;
  WEFT_DCHECK(timer->wheel_ == this);  // Ours: as above
  Remove(timer);
  FindNext();
}

// Files the timer by its tick, seen from now_tick_.
void TimerWheel::Place(Timer* timer) {
  const uint64_t tick = TickOf(timer->deadline_ns_);
  if (tick <= now_tick_) {
    timer->level_ = kDueLevel;
    due_.PushBack(timer);
    return;
  }
  const int level = LevelOf(tick);
  const int slot = DigitOf(tick, level);
  timer->level_ = static_cast<uint8_t>(level);
  timer->slot_ = static_cast<uint8_t>(slot);
  levels_[level].slots[slot].PushBack(timer);
  levels_[level].occupied |= uint64_t{1} << slot;
  occupied_levels_ |= 1u << level;
}

// Takes an armed timer off its list and disarms it.
void TimerWheel::Remove(Timer* timer) {
  TimerList::Remove(timer);
  timer->wheel_ = nullptr;
  --size_;
  if (timer->level_ == kDueLevel) return;
  Level& level = levels_[timer->level_];
  if (!level.slots[timer->slot_].empty()) return;
  level.occupied &= ~(uint64_t{1} << timer->slot_);
  if (level.occupied == 0) occupied_levels_ &= ~(1u << timer->level_);
}

// The tick at which a slot begins. All occupied slots of a level lie ahead of now_tick_ in the
// current turn of that level, hence the digits above it are those of now_tick_.
uint64_t TimerWheel::FirstTickOf(int level, int slot) const {
  const int shift = level * kDigitBits;
  const uint64_t above = now_tick_ >> shift >> kDigitBits << kDigitBits;
  return (above | static_cast<uint64_t>(slot)) << shift;
}

// Every timer of a lower level is before every timer of a higher one, so the first slot of the
// lowest occupied level is the next.
void TimerWheel::FindNext() {
  if (!due_.empty()) {
    next_ns_ = 0;
  } else if (occupied_levels_ == 0) {
    next_ns_ = kNever;
  } else {
    const int level = std::countr_zero(occupied_levels_);
    next_ns_ = FirstTickOf(level, std::countr_zero(levels_[level].occupied)) << kTickBits;
  }
}

// Files the timers of a slot anew: to `due_` or to lower levels.
// REQUIRES: now_tick_ is the slot's first tick.
void TimerWheel::Cascade(int level, int slot) {
  TimerList timers;
  timers.SpliceBack(levels_[level].slots[slot]);
  levels_[level].occupied &= ~(uint64_t{1} << slot);
  if (levels_[level].occupied == 0) occupied_levels_ &= ~(1u << level);
  while (Timer* timer = timers.PopFront()) Place(timer);
}

int TimerWheel::AdvanceSlowly(uint64_t now_ns) {
  WEFT_CHECK(!advancing_);  // Ours: an engine takes no turn inside of a turn
  // First move the time, then fire: callbacks see the wheel as it is after this Advance, and what
  // they schedule for the past lands in `due_` for the next one.
  const uint64_t target = std::max(now_ns >> kTickBits, now_tick_);
  while (occupied_levels_ != 0) {
    const int level = std::countr_zero(occupied_levels_);
    const int slot = std::countr_zero(levels_[level].occupied);
    const uint64_t first_tick = FirstTickOf(level, slot);
    if (first_tick > target) break;
    now_tick_ = first_tick;
    Cascade(level, slot);
  }
  now_tick_ = target;

  firing_.SpliceBack(due_);
  FindNext();
  advancing_ = true;
  int fired = 0;
  for (; Timer* timer = firing_.PopFront(); ++fired) {
    timer->wheel_ = nullptr;
    --size_;
    timer->OnTimer();  // May have destroyed the timer.
  }
  advancing_ = false;
  return fired;
}

void TimerWheel::CheckInvariants() {
  std::size_t armed = due_.CountSlowly() + firing_.CountSlowly();
  for (int level = 0; level < kLevels; ++level) {
    // Ours: invariants, here and below, which tests ask for
    WEFT_CHECK((levels_[level].occupied != 0) == ((occupied_levels_ >> level & 1) != 0));
    for (int slot = 0; slot < kSlots; ++slot) {
      TimerList& timers = levels_[level].slots[slot];
      // Ours: as above
      WEFT_CHECK(timers.empty() == ((levels_[level].occupied >> slot & 1) == 0));
      for (Timer& timer : timers) {
        const uint64_t tick = TickOf(timer.deadline_ns_);
        // Ours: as above
        WEFT_CHECK(tick > now_tick_ && timer.wheel_ == this);
        WEFT_CHECK(LevelOf(tick) == level);
        WEFT_CHECK(DigitOf(tick, level) == slot);
        ++armed;
      }
    }
  }
  WEFT_CHECK(armed == size_);  // Ours: as above
}

}  // namespace weft
