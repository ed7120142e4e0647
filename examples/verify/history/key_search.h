// The search for an order of the operations on one key (checker.h says by which method).
//
// Operations are numbered: those that returned by invocation, 0 to completed_ - 1; then, likewise,
// the writes that never returned. The invocations and returns of the former stand in a list by
// time. An operation is placed by taking its two events out of the list; then those before the
// first return are exactly the operations that may come next.
//
// Threads:    one.
// Invariant:  placed operations are out of the list, in the order of trail_; state_ is what the
//             record holds after them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "examples/verify/history/operation.h"

namespace verify {

class KeySearch {
 public:
  enum class Result : uint8_t { kFound = 1, kNone, kGaveUp };

  // Of one key, by invocation.
  explicit KeySearch(const History& history);

  Result Run(uint64_t max_configurations);

  uint64_t configurations() const { return configurations_.size(); }
  // After kNone: how far it got at best, and what does not fit there.
  std::string Explain() const;

 private:
  using Index = uint32_t;
  static constexpr Index kNoIndex = ~Index{0};
  // The state, and what has been placed.
  using Configuration = absl::InlinedVector<uint64_t, 5>;

  struct Choice {  // a write that was placed
    Index operation;
    Value state_before;
    size_t placed_before;
  };

  // --- the list
  Index CallOf(Index operation) const { return 2 * operation; }
  Index ReturnOf(Index operation) const { return 2 * operation + 1; }
  static bool IsReturn(Index event) { return event % 2 == 1; }
  Index Head() const { return 2 * completed_; }
  void LinkEvents();
  void TakeOut(Index event);
  void PutBack(Index event);

  // --- the search
  bool MayComeNext(Index operation) const;
  Value StateAfter(Index operation) const;
  void Place(Index operation);
  void PlaceGets();
  Index NextChoice(Index after) const;  // kNoIndex: from the first; kNoIndex: there is none
  Index NextPending(Index after) const;
  bool Choose(Index operation);
  Index GoBack();
  Configuration Now() const;
  void RememberBest();
  std::string WhyNot(Index operation, Value state) const;
  std::string StillToSee(const std::vector<bool>& placed, uint64_t start_ns) const;

  // Constant after construction.
  std::vector<Operation> operations_;
  Index completed_ = 0;

  // The list of events: Head(), then by time.
  std::vector<Index> next_;
  std::vector<Index> previous_;

  std::vector<bool> is_placed_;
  std::vector<Index> trail_;  // what is placed, in order
  std::vector<Choice> choices_;
  Index left_ = 0;  // that returned and are not placed
  Value state_ = kAbsent;
  absl::flat_hash_map<Value, Index> gets_left_;    // not placed, that saw this value
  absl::flat_hash_map<Value, Index> writes_left_;  // not placed, that write this value
  absl::flat_hash_set<Configuration> configurations_;

  // The longest order found.
  std::vector<Index> best_;
  Value best_state_ = kAbsent;
};

}  // namespace verify
