// One transfer between a handler's memory and its client's, and the queue of those that wait for
// their turn on the connection.
//
// A connection has a limited number of one-sided operations outstanding; transfers beyond it wait
// here, oldest first (a waiting one may leave the queue at any time). There are never more than
// ServerBulk::kMaxTransfers for each call.
//
// Threads: the engine's. Lifetime: transfers belong to their calls, which stay until they have
//   ended; the queue belongs to the ServerConnection.
// Invariants: every transfer that was started ends exactly once, through OnEnded().
#pragma once

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "rpc/memory_slice.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/transport.h"

namespace weft {

class BulkTransfer : private Operation, public ListNode<> {
 public:
  // Moves `local.length` bytes, from here to there if `push`.
  bool push = false;
  MemorySlice local;
  RemoteSpan remote;

  // It is posted, and the provider may touch the memory.
  virtual void OnPosted() = 0;
  // It is over. `posted`: OnPosted() was called.
  virtual void OnEnded(bool posted, const absl::Status& status) = 0;

 protected:
  ~BulkTransfer() = default;

 private:
  friend class TransferQueue;

  void OnComplete(const absl::Status& status) final { OnEnded(/*posted=*/true, status); }
};

class TransferQueue {
 public:
  // Posts it, or keeps it until Pump().
  void Start(Connection& connection, BulkTransfer& transfer);
  // The connection may take more.
  void Pump(Connection& connection);

 private:
  // False: not now.
  static bool TryPost(Connection& connection, BulkTransfer& transfer);

  IntrusiveList<BulkTransfer> waiting_;
};

}  // namespace weft
