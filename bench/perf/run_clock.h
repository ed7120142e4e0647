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
  explicit RunClock(double seconds)
      : start_ns_(Clock::Real().NowNs()),
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
class RateCounter {
 public:
  explicit RateCounter(double seconds) : run_(seconds) {}

  void Add(uint64_t finished) { finished_ += finished; }

  // Looks at the clock. False: the run is over.
  bool Continue() {
    now_ns_ = Clock::Real().NowNs();
    if (from_ns_ == 0 && run_.IsCounted(now_ns_)) {
      from_ns_ = now_ns_;
      finished_ = 0;
    }
    return !(run_.IsOver(now_ns_) && from_ns_ != now_ns_ && finished_ > 0);
  }

  // As of the last Continue().
  double PerSecond() const {
    return static_cast<double>(finished_) * kNsPerSec / static_cast<double>(now_ns_ - from_ns_);
  }

 private:
  const RunClock run_;
  uint64_t finished_ = 0;
  uint64_t from_ns_ = 0;
  uint64_t now_ns_ = 0;
};

}  // namespace weft::bench
