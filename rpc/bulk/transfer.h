// One transfer between a handler's memory and its client's.
//
// It waits for its turn on the connection in a TransferQueue. As long as it is not over, its memory
// is the transfer's, and its call stays, whatever becomes of the call or of the connection.
//
// Threads: the engine's. Lifetime: its call's, which stays until it has ended.
// Invariants: every transfer that was started ends exactly once, through OnEnded(), and one that
//   was posted never from inside TransferQueue::Start().
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "rpc/wire/service.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/slice.h"

namespace weft {

class TransferQueue;
struct PostedTransferTag;

class BulkTransfer : private Operation, public ListNode<>, private ListNode<PostedTransferTag> {
 public:
  // As it waits for its turn.
  using ListNode<>::linked;
  using ListNode<>::Unlink;

  // Moves `local.length` bytes, from here to there if `push`.
  bool push = false;
  Priority priority = Priority::kNormal;
  Slice local;
  RemoteSpan remote;

  // It is posted, and the provider may touch the memory.
  virtual void OnPosted() = 0;
  // It is over. `posted`: OnPosted() was called.
  virtual void OnEnded(bool posted, const absl::Status& status) = 0;

 protected:
  ~BulkTransfer() = default;

 private:
  friend class TransferQueue;
  friend class IntrusiveList<BulkTransfer, PostedTransferTag>;

  void OnComplete(const absl::Status& status) final;

  TransferQueue* queue_ = nullptr;     // while posted
  uint64_t end_by_ns_ = 0;             // while posted, and not done at once
  BulkTransfer* next_done_ = nullptr;  // in the queue's list of those that are done
};

}  // namespace weft
