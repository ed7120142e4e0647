// How much of something may happen: so much at once, and from then on so often.
//
//   RateBudget lines(/*burst=*/100, /*interval_ns=*/50'000'000);  // 20 in a second
//   if (lines.permits(now_ns)) lines.Take(now_ns);
//
// Threads: as a plain value. Errors: none.
// Invariants: what is permitted at one moment is `burst` at most, however long nothing was used.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft {

class RateBudget {
 public:
  // Permits `burst` at once, and one more in each interval. now_ns and burst intervals, and now_ns
  // and what is asked for times the interval, are below 2^63 ns.
  constexpr RateBudget(uint64_t burst, uint64_t interval_ns)
      : burst_ns_(burst * interval_ns), interval_ns_(interval_ns) {}

  bool permits(uint64_t now_ns, uint64_t count = 1) const {
    return std::max(used_until_ns_, now_ns) + count * interval_ns_ <= now_ns + burst_ns_;
  }
  // REQUIRES: permits(now_ns, count).
  void Take(uint64_t now_ns, uint64_t count = 1) {
    used_until_ns_ = std::max(used_until_ns_, now_ns) + count * interval_ns_;
  }

 private:
  const uint64_t burst_ns_;
  const uint64_t interval_ns_;
  uint64_t used_until_ns_ = 0;  // each one uses an interval
};

}  // namespace weft
