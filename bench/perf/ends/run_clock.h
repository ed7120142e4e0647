// When a run ends, and from when on it counts.
//
// A run ends with something counted, however late: on a busy machine an end may get no processor
// for longer than a short run takes. So loops end when IsOver() and there is a result.
//
// Threads: one.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace weft::bench {

// At the start of each run, what is measured runs for this share of its time without being counted:
// caches and branch predictors belong to the leg that ran before.
inline constexpr double kWarmUpShare = 0.1;

class RunClock {
 public:
  explicit RunClock(double seconds, const Clock& clock = Clock::Real())
      : start_ns_(clock.NowNs()),
        counted_from_ns_(start_ns_ + static_cast<uint64_t>(seconds * kWarmUpShare * kNsPerSec)),
        end_ns_(start_ns_ + static_cast<uint64_t>(seconds * kNsPerSec)) {}

  bool IsCounted(uint64_t now_ns) const { return now_ns >= counted_from_ns_; }
  bool IsOver(uint64_t now_ns) const { return now_ns >= end_ns_; }

 private:
  const uint64_t start_ns_;
  const uint64_t counted_from_ns_;
  const uint64_t end_ns_;
};

// Counts what is finished, from the moment on when it counts.
//
// What is outstanding at one time may end at one time: eight writes that are queued on one
// connection are answered when the last of them has arrived. So the count begins behind an end, and
// is of whole bunches, of at least kLeastBunches of them: a leg that is shorter than a bunch takes
// (half a second for 8 MiB over an emulated device) would count one end, or eight, in the same
// time.
class RateCounter {
 public:
  // One tells how long a bunch takes; two are half as often disturbed.
  static constexpr uint64_t kLeastBunches = 2;

  // `outstanding` > 0: at one time.
  RateCounter(double seconds, uint64_t outstanding, const Clock& clock = Clock::Real())
      : clock_(clock),
        run_(seconds, clock),
        bunch_(outstanding),
        goal_(kLeastBunches * outstanding) {}

  void Add(uint64_t finished) { finished_ += finished; }

  // Looks at the clock. False: the run is over.
  bool Continue() {
    now_ns_ = clock_.NowNs();
    if (state_ == State::kCounting) {
      if (!run_.IsOver(now_ns_)) return true;
      if (finished_ > goal_ && !over_) goal_ = (finished_ + bunch_ - 1) / bunch_ * bunch_;
      over_ = true;
      return finished_ < goal_;
    }
    if (state_ == State::kWarmUp && run_.IsCounted(now_ns_)) {
      state_ = State::kAwaitingEnd;
      finished_ = 0;
    } else if (state_ == State::kAwaitingEnd && finished_ > 0) {
      state_ = State::kCounting;
      from_ns_ = now_ns_;
      finished_ = 0;
    }
    return true;
  }

  // As of the last Continue().
  double PerSecond() const {
    return static_cast<double>(finished_) * kNsPerSec / static_cast<double>(now_ns_ - from_ns_);
  }

 private:
  enum class State : uint8_t {
    kWarmUp = 1,       // nothing counts yet
    kAwaitingEnd = 2,  // the next end is where the count begins
    kCounting = 3,
  };

  const Clock& clock_;
  const RunClock run_;
  const uint64_t bunch_;
  uint64_t goal_;      // the run goes on until so many have ended
  bool over_ = false;  // its time; goal_ is known
  State state_ = State::kWarmUp;
  uint64_t finished_ = 0;
  uint64_t from_ns_ = 0;
  uint64_t now_ns_ = 0;
};

}  // namespace weft::bench
