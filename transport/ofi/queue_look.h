// When to look at a completion queue whose every look costs a system call.
//
// Each turn, while something comes or may come. A queue that has given nothing for kQuietLooks, or
// that has no endpoints, is looked at every kQuietTurns: an engine that has other, cheaper paths
// does not pay for this one, and one that has nothing to do takes turns so fast that the wait is
// about 2 us.
//
// Threads: one.
#pragma once

#include <cstdint>

namespace weft {

class QueueLook {
 public:
  // Looks without a find, about 0.3 us each: longer than what most calls on one network take.
  static constexpr uint32_t kQuietLooks = 1024;
  // Turns of 60 ns (an idle engine's) between two looks.
  static constexpr uint32_t kQuietTurns = 32;

  // Endpoints that complete to the queue. (One that has gone may have left entries behind.)
  void Join() {
    ++endpoints_;
    Expect();
  }
  void Leave() { --endpoints_; }
  uint32_t endpoints() const { return endpoints_; }

  // Once in each turn: whether to look in this one. `awaited`: this side, or a peer, may have work
  // under way that only looking moves on.
  bool IsDue(bool awaited) {
    if (endpoints_ > 0 && (awaited || empty_looks_ < kQuietLooks)) return true;
    if (++turns_ < kQuietTurns) return false;
    turns_ = 0;
    return true;
  }
  void Looked(bool found) {
    if (found) {
      empty_looks_ = 0;
    } else if (empty_looks_ < kQuietLooks) {
      ++empty_looks_;
    }
  }
  // Something is about to come: the next turns look.
  void Expect() { empty_looks_ = 0; }

 private:
  uint32_t endpoints_ = 0;
  uint32_t empty_looks_ = 0;  // in a row, up to kQuietLooks
  uint32_t turns_ = 0;        // without a look
};

}  // namespace weft
