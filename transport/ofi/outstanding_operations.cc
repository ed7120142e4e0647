#include "transport/ofi/outstanding_operations.h"

namespace weft {

// The record is free, and its id stale, before the user hears of it.
void OutstandingOperations::Complete(OperationRecord* record) {
  Operation* const user = record->user;
  const absl::Status result = record->status;
  records_.Give(record);
  user->OnComplete(result);
}

void OutstandingOperations::Defer(OperationRecord* record, const absl::Status& status) {
  record->status = status;
  record->finished = true;
  deferred_.PushBack(record);
}

// A user that hears of one operation may post another, or destroy a link and with it what waits
// here: so one at a time from the list itself, and a bound. (Without the bound a user that posts
// the next from the last could be the whole turn.)
int OutstandingOperations::Deliver(int budget) {
  int count = 0;
  for (; count < budget && !deferred_.empty(); ++count) {
    Complete(static_cast<OperationRecord*>(deferred_.PopFront()));
  }
  return count;
}

void OutstandingOperations::CompleteOf(const FabricLink* link) {
  WorkList mine;
  for (Work& work : deferred_) {
    if (work.link != link) continue;
    WorkList::Remove(&work);
    mine.PushBack(&work);
  }
  while (Work* work = mine.PopFront()) Complete(static_cast<OperationRecord*>(work));
}

bool OutstandingOperations::HasRoomAgain() {
  if (!ran_out_ || size() >= capacity()) return false;
  ran_out_ = false;
  return true;
}

}  // namespace weft
