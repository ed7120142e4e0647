#include "rpc/bulk/transfer.h"

namespace weft {

void BulkTransfer::OnComplete(const absl::Status& status) { queue_->End(*this, status); }

void TransferQueue::Start(BulkTransfer& transfer) {
  // Nobody overtakes those who wait.
  if (waiting_.empty() && TryPost(transfer)) return;
  waiting_.PushBack(&transfer);
}

bool TransferQueue::IsInPace(bool push, uint64_t bytes) {
  const uint64_t posted = PostedBytes(push);
  const uint64_t most = push ? pace_.pushed_bytes : pace_.fetched_bytes;
  return posted == 0 || (posted < most && bytes <= most - posted);
}

// Alone, a push is not acknowledged: its reply would leave a round trip later.
TransferQueue::PostFunction TransferQueue::PostFunctionFor(const BulkTransfer& transfer) const {
  if (!transfer.push) return &Connection::Read;
  const bool acknowledged = transfer.local.length >= pace_.acknowledged_bytes && pushed_bytes_ > 0;
  return acknowledged ? &Connection::WriteAcknowledged : &Connection::Write;
}

bool TransferQueue::TryPost(BulkTransfer& transfer) {
  if (!IsInPace(transfer.push, transfer.local.length)) return false;
  Connection& connection = *host_->connection();
  absl::StatusOr<const Region*> region = transfer.local.memory->For(connection);
  if (!region.ok()) {
    transfer.OnEnded(/*posted=*/false, region.status());
    return true;
  }
  const auto post = PostFunctionFor(transfer);
  const absl::Status posted =
      (connection.*post)(**region, transfer.local.offset, transfer.remote, &transfer);
  // OnWritable() will come.
  if (absl::IsResourceExhausted(posted)) return false;
  if (posted.ok()) {
    transfer.queue_ = this;
    PostedBytes(transfer.push) += transfer.local.length;
    transfer.OnPosted();
  } else {
    transfer.OnEnded(/*posted=*/false, posted);
  }
  return true;
}

// The reply of what has ended goes before the next is posted: that may take longer.
void TransferQueue::End(BulkTransfer& transfer, const absl::Status& status) {
  Host& host = *host_;
  host.BeginEnd();
  PostedBytes(transfer.push) -= transfer.local.length;
  unreplied_bytes_ += transfer.local.length;
  transfer.OnEnded(/*posted=*/true, status);
  if (unreplied_bytes_ >= pace_.replied_bytes) SendReplies();
  Pump();
  host.FinishEnd();
}

void TransferQueue::SendReplies() {
  unreplied_bytes_ = 0;
  if (Connection* connection = host_->connection()) connection->Flush();
}

void TransferQueue::Pump() {
  while (host_->connection() != nullptr) {
    BulkTransfer* const transfer = waiting_.PopFront();
    if (transfer == nullptr) return;
    // What it starts when it ends goes behind those that wait.
    if (TryPost(*transfer)) continue;
    waiting_.PushFront(transfer);
    return;
  }
}

}  // namespace weft
