// How long a client waits before it tries to connect again: doubled with each failure in a row, up
// to a limit. Half of it is random, so that a crowd of clients does not come back at the same
// instant.
//
// Threads: one. Errors: none.
// Invariants: longest / 2 <= a pause <= longest, where longest = min(min_us << (failures - 1),
//   max_us).
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/random.h"

namespace weft {

class Backoff {
 public:
  // The shortest first pause and the longest, in microseconds. `seed` of the jitter: another for
  // each client.
  // REQUIRES: min_us <= max_us, min_us < 2^34.
  Backoff(uint64_t min_us, uint64_t max_us, uint64_t seed)
      : min_us_(min_us), max_us_(max_us), jitter_(seed) {}

  // An attempt has failed, or a connection was lost.
  void OnFailure() { ++failures_; }
  // The peer is of use: the next failure is the first one again.
  void OnAnswer() { failures_ = 0; }

  // In a row.
  uint32_t failures() const { return failures_; }

  // The length of the pause that is due now, in microseconds. REQUIRES: failures() >= 1.
  uint64_t NextPauseUs() {
    // More doublings than between the shortest pause (1 us) and the longest allowed (an hour) do
    // not matter, and would overflow.
    constexpr uint32_t kMostDoublings = 30;
    const uint32_t doublings = std::min(failures_ - 1, kMostDoublings);
    const uint64_t longest_us = std::min(min_us_ << doublings, max_us_);
    return longest_us - jitter_.Uniform(longest_us / 2 + 1);
  }

 private:
  const uint64_t min_us_;
  const uint64_t max_us_;
  uint32_t failures_ = 0;
  Random jitter_;
};

}  // namespace weft
