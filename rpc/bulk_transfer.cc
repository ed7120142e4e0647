#include "rpc/bulk_transfer.h"

namespace weft {

void TransferQueue::Start(Connection& connection, BulkTransfer& transfer) {
  // Nobody overtakes those who wait.
  if (waiting_.empty() && TryPost(connection, transfer)) return;
  waiting_.PushBack(&transfer);
}

bool TransferQueue::TryPost(Connection& connection, BulkTransfer& transfer) {
  absl::StatusOr<const Region*> region = transfer.local.memory->For(connection);
  if (!region.ok()) {
    transfer.OnEnded(/*posted=*/false, region.status());
    return true;
  }
  const size_t from = transfer.local.offset;
  const absl::Status posted = transfer.push
                                  ? connection.Write(**region, from, transfer.remote, &transfer)
                                  : connection.Read(**region, from, transfer.remote, &transfer);
  // OnWritable() will come.
  if (absl::IsResourceExhausted(posted)) return false;
  if (posted.ok()) {
    transfer.OnPosted();
  } else {
    transfer.OnEnded(/*posted=*/false, posted);
  }
  return true;
}

void TransferQueue::Pump(Connection& connection) {
  while (BulkTransfer* transfer = waiting_.PopFront()) {
    // What it starts when it ends goes behind those that wait.
    if (TryPost(connection, *transfer)) continue;
    waiting_.PushFront(transfer);
    return;
  }
}

}  // namespace weft
