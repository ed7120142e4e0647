// How long a shm domain copies for its links in one turn of the engine. Time is counted, not bytes:
// 1 MiB takes 30 us where its pages are mapped and in the cache, and a millisecond where its owner
// has never touched them, for then the kernel makes them during the copy.
//
// Operations of up to kSmallBytes are copied inside Post() and are not counted. Of larger ones a
// piece is begun only while the turn has time; the rest waits until its link comes next
// (LinkLists::GiveTurns()). So a turn is longer by the last piece: 10 to 35 us, 200 us of pages
// that nobody has touched.
//
// Threads: the engine's. Lifetime: a member of ShmDomain; the clock outlives it.
#pragma once

#include <cstdint>

#include "core/clock.h"

namespace weft {

class CopyTurn {
 public:
  // As long as a hundred small calls take. With half of it most transfers of 1 MiB, 50 to 70 us,
  // would need two turns: a tenth less of their rate.
  static constexpr uint64_t kMostNs = 100 * kNsPerUs;
  // To look at the clock for each costs 0.3 %; half as large ones cost transfers of 1 MiB 4 %.
  static constexpr uint64_t kPieceBytes = 256 << 10;
  // Of all transfers of a Post() together: 1 us, less than the call that asked for it.
  static constexpr uint64_t kSmallBytes = 16 << 10;

  explicit CopyTurn(const Clock* clock) : clock_(*clock) {}

  void Begin() { spent_ns_ = 0; }
  bool may_copy() const { return spent_ns_ < kMostNs; }
  // Runs work(), counts its time, and returns what it returns.
  template <class Work>
  auto Count(Work&& work) {
    const uint64_t begin_ns = clock_.NowNs();
    auto result = work();
    spent_ns_ += clock_.NowNs() - begin_ns;
    return result;
  }

 private:
  const Clock& clock_;
  uint64_t spent_ns_ = 0;  // in this turn
};

}  // namespace weft
