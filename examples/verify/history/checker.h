// Is a history linearizable? That is: can each operation be given a moment between its invocation
// and its return, such that a plain map, changed at those moments in that order, answers every
// operation as it was answered?
//
// Each key is looked at alone: a history is linearizable exactly if it is for each object (Herlihy
// and Wing, "Linearizability", TOPLAS 1990, theorem 1). For one key it is the search of Wing and
// Gong ("Testing and verifying concurrent objects", JPDC 1993): of the operations that no other had
// returned before, try one after the other as the next; where none fits, go back. As in Lowe's
// version ("Testing for linearizability", CCPE 2017), which Porcupine uses too, a configuration
// (what has been placed, what the record then holds) is not searched twice.
//
// Two facts about records shorten the search, and lose nothing:
//   a Get that fits now can be placed now: it changes nothing for the others.
//   a value that a Get still has to see must not be overwritten where nobody writes it again.
//
// An operation that never returned may be placed anywhere after its invocation, or nowhere. A Get
// that never returned says nothing.
//
// Threads:  pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "examples/verify/history/operation.h"

namespace verify {

struct CheckLimits {
  // The problem is NP-complete: configurations looked at for one key before giving up. Takes about
  // 100 bytes each.
  uint64_t max_configurations = 2'000'000;
};

struct Verdict {
  enum class Kind : uint8_t { kLinearizable = 1, kViolation, kGaveUp };
  Kind kind = Kind::kLinearizable;
  uint64_t operations = 0;      // checked
  uint64_t configurations = 0;  // of all keys
  std::string text;             // a violation: the key, and where the search got stuck, to be read

  bool ok() const { return kind == Kind::kLinearizable; }
};

// Stops at the first key that is not linearizable.
Verdict CheckHistory(const History& history, const CheckLimits& limits = {});

}  // namespace verify
