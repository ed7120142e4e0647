// The one-sided operations of one domain, from the call that posts them until their users have
// heard of their end.
//
//   Take()      a record is in use: waiting, or in the provider's hands
//   Complete()  the record is free again, and the user hears of it at once
//   Defer()     the user hears of it in the next turn, or by CompleteOf() when the link goes
//
// Threads: the engine's.
// Lifetime: operations of users live until they complete.
// Invariants: a record is free, in its link's lists, or deferred; `finished` says the last.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "transport/ofi/operation_table.h"
#include "transport/ofi/work.h"
#include "transport/operation_join.h"

namespace weft {

class OutstandingOperations {
 public:
  explicit OutstandingOperations(uint32_t capacity) : records_(capacity), joins_(capacity) {}

  // Whether `count` more can be taken; if not, HasRoomAgain() will tell.
  bool HasRoomFor(size_t count) {
    const bool has_room = capacity() - size() >= count;
    ran_out_ = ran_out_ || !has_room;
    return has_room;
  }
  // REQUIRES: HasRoomFor(1).
  OperationRecord* Take() { return records_.Take(); }
  // What stands for `user` in the records of a batch of `pieces`; HasRoomFor(pieces) is enough, as
  // there are as many of these as records.
  Operation* Join(Operation* user, uint32_t pieces) { return joins_.Take(user, pieces); }

  WorkId IdOf(const OperationRecord* record) const { return records_.IdOf(record); }
  // nullptr for one that is over: at most its user has still to hear of it.
  OperationRecord* Find(WorkId id) {
    OperationRecord* const record = records_.Find(id);
    return record == nullptr || record->finished ? nullptr : record;
  }

  // REQUIRES: on no list.
  void Complete(OperationRecord* record);
  void Defer(OperationRecord* record, const absl::Status& status);
  // Users of deferred operations hear of them, of at most `budget`. Returns how many there were.
  int Deliver(int budget);
  // And users of those of `link`, which is about to go.
  void CompleteOf(const FabricLink* link);

  bool has_deferred() const { return !deferred_.empty(); }
  size_t size() const { return records_.size(); }
  size_t capacity() const { return records_.capacity(); }

  // HasRoomFor() was false, and HasRoomAgain() was not true since.
  bool ran_out() const { return ran_out_; }
  // There is room again; true once.
  bool HasRoomAgain();

 private:
  OperationTable records_;
  OperationJoins joins_;
  WorkList deferred_;
  bool ran_out_ = false;
};

}  // namespace weft
