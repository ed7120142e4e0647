// What a shm domain copies for its links in one turn of the engine: what goes into kMostNs,
// whatever they have, so that the turn is short. It is time that is counted, not bytes: 1 MiB takes
// 30 us where its pages are mapped and in the cache, and a millisecond where its owner has never
// touched them, for then the kernel makes them during the copy.
//
// Small operations are copied at once and wait for nobody. Larger ones are copied in pieces while
// the turn has time; what is left goes on by turns (LinkLists::GiveTurns()).
//
// Threads: the engine's. Lifetime: a member of ShmDomain; the clock outlives it.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace weft {

class CopyTurn {
 public:
  // As much as a hundred small calls take. Half of it would cost bulk of 1 MiB, 50 to 70 us, a
  // tenth of its rate, for most of these would go on in another turn.
  static constexpr uint64_t kMostNs = 100'000;
  // By which a turn becomes longer at the most: 10 to 35 us, 200 us of pages that nobody has
  // touched. To look at the clock for each costs 0.3 %; half as large ones cost bulk 4 %.
  static constexpr uint64_t kPieceBytes = 256 << 10;
  // All pieces of an operation together: 1 us, less than what asked for it.
  static constexpr uint64_t kSmallBytes = 16 << 10;

  explicit CopyTurn(const Clock* clock) : clock_(*clock) {}

  void Begin() { copied_ns_ = 0; }
  bool may_copy() const { return copied_ns_ < kMostNs; }
  // What copy() returns; its time is counted.
  template <class Copy>
  auto Count(Copy&& copy) {
    const uint64_t begin_ns = clock_.NowNs();
    auto result = copy();
    copied_ns_ += clock_.NowNs() - begin_ns;
    return result;
  }

 private:
  const Clock& clock_;
  uint64_t copied_ns_ = 0;  // in this turn
};

}  // namespace weft
