#include "rpc/bulk_transfer.h"

#include <algorithm>
#include <array>

#include "transport/transfer_table.h"

namespace weft {
namespace {

absl::Status PostPieces(Connection& connection, const Region& region, const MemorySlice& local,
                        const RemoteSpan& remote, uint64_t piece_bytes, Operation* op) {
  piece_bytes = std::max(piece_bytes, (local.length + kMaxBatchTransfers - 1) / kMaxBatchTransfers);
  std::array<Transfer, kMaxBatchTransfers> pieces;
  size_t count = 0;
  for (size_t at = 0; at < local.length; at += piece_bytes) {
    const size_t bytes = std::min(piece_bytes, local.length - at);
    pieces[count++] = {&region, local.offset + at, remote.Slice(at, bytes)};
  }
  return connection.WriteBatch({pieces.data(), count}, op);
}

absl::Status PostPush(Connection& connection, const Region& region, const MemorySlice& local,
                      const RemoteSpan& remote, Operation* op) {
  const uint64_t piece_bytes = TransfersOf(connection.path().kind).push_piece_bytes;
  if (piece_bytes != 0 && local.length > piece_bytes) {
    absl::Status posted = PostPieces(connection, region, local, remote, piece_bytes, op);
    // Else the connection is one of very few operations (LinkOptions::max_outstanding_operations).
    if (!absl::IsInvalidArgument(posted)) return posted;
  }
  return connection.Write(region, local.offset, remote, op);
}

}  // namespace

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

bool TransferQueue::TryPost(BulkTransfer& transfer) {
  if (!IsInPace(transfer.push, transfer.local.length)) return false;
  Connection& connection = *host_->connection();
  absl::StatusOr<const Region*> region = transfer.local.memory->For(connection);
  if (!region.ok()) {
    transfer.OnEnded(/*posted=*/false, region.status());
    return true;
  }
  const MemorySlice& local = transfer.local;
  const absl::Status posted =
      transfer.push ? PostPush(connection, **region, local, transfer.remote, &transfer)
                    : connection.Read(**region, local.offset, transfer.remote, &transfer);
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
