#include "rpc/bulk/transfer_queue.h"

#include <utility>

#include "core/strings.h"
#include "transport/path.h"

namespace weft {

void BulkTransfer::OnComplete(const absl::Status& status) { queue_->End(*this, status); }

void TransferQueue::Start(BulkTransfer& transfer) {
  // Nobody overtakes those who wait and are as urgent.
  if (waiting_.may_pass(transfer.priority) && TryPost(transfer)) return;
  waiting_.PushBack(&transfer, transfer.priority);
}

bool TransferQueue::IsWithinLimit(bool push, uint64_t bytes) {
  const uint64_t posted = PostedBytes(push);
  const uint64_t most = push ? limit_.pushed_bytes : limit_.fetched_bytes;
  return posted == 0 || (posted < most && bytes <= most - posted);
}

// The reply is sent behind the end of a push, so no message has to be kept behind it. Alone, a push
// is not acknowledged: its reply would leave a round trip later.
TransferKind TransferQueue::KindOf(const BulkTransfer& transfer) const {
  if (!transfer.push) return TransferKind::kRead;
  const bool acknowledged = transfer.local.length >= limit_.acknowledged_bytes && pushed_bytes_ > 0;
  return acknowledged ? TransferKind::kWriteAcknowledged : TransferKind::kWriteUnordered;
}

bool TransferQueue::TryPost(BulkTransfer& transfer) {
  if (!IsWithinLimit(transfer.push, transfer.local.length)) return false;
  Connection& connection = *host_->connection();
  absl::StatusOr<const Region*> region = transfer.local.memory->For(connection);
  if (!region.ok()) {
    transfer.OnEnded(/*posted=*/false, region.status());
    return true;
  }
  const Transfer part = {*region, transfer.local.offset, transfer.remote};
  const absl::StatusOr<Posted> posted =
      connection.memory().Post(KindOf(transfer), absl::MakeConstSpan(&part, 1), &transfer);
  // OnWritable() will come.
  if (absl::IsResourceExhausted(posted.status())) return false;
  if (!posted.ok()) {
    transfer.OnEnded(/*posted=*/false, posted.status());
    return true;
  }
  transfer.queue_ = this;
  PostedBytes(transfer.push) += transfer.local.length;
  transfer.OnPosted();
  if (*posted == Posted::kDone) {
    EndSoon(transfer);
  } else {
    posted_.PushBack(&transfer);
    const uint64_t bytes = pushed_bytes_ + fetched_bytes_;
    EndBy(transfer, TransferTimeNs(transfer_timeout_ns_, bytes));
  }
  return true;
}

void TransferQueue::EndBy(BulkTransfer& transfer, uint64_t most_ns) {
  const uint64_t now_ns = host_->now_ns();
  transfer.end_by_ns_ = most_ns < kNever - now_ns ? now_ns + most_ns : kNever;
  if (transfer.end_by_ns_ != kNever) WatchUntil(transfer.end_by_ns_);
}

void TransferQueue::WatchUntil(uint64_t deadline_ns) {
  if (watch_.armed() && watch_.deadline_ns() <= deadline_ns) return;
  host_->timers().Schedule(&watch_, deadline_ns);
}

void TransferQueue::Hurry(BulkTransfer& transfer) {
  if (!decltype(posted_)::IsLinked(&transfer)) return;
  if (transfer.end_by_ns_ <= host_->now_ns() + kLateTransferNs) return;
  EndBy(transfer, kLateTransferNs);
}

void TransferQueue::EndOverdue() {
  Connection* const connection = host_->connection();
  if (connection == nullptr) return;
  const uint64_t now_ns = host_->now_ns();
  for (const BulkTransfer& transfer : posted_) {
    if (transfer.end_by_ns_ <= now_ns) {
      return connection->Close(StrCat(
          "the client has not let ", transfer.local.length, " bytes of its memory be ",
          transfer.push ? "written" : "read", " in time (LinkOptions::transfer_timeout_ns)"));
    }
  }
  for (const BulkTransfer& transfer : posted_) {
    if (transfer.end_by_ns_ != kNever) WatchUntil(transfer.end_by_ns_);
  }
}

// Not inside Start(), whose caller may start the next one when this ends.
void TransferQueue::EndSoon(BulkTransfer& transfer) {
  (first_done_ == nullptr ? first_done_ : last_done_->next_done_) = &transfer;
  last_done_ = &transfer;
  host_->timers().Schedule(this, 0);  // due at the next look
}

// As long as one of them has not ended, its call stays, and so does this.
void TransferQueue::OnTimer() {
  BulkTransfer* next = std::exchange(first_done_, nullptr);
  while (next != nullptr) {
    BulkTransfer& transfer = *next;
    next = std::exchange(transfer.next_done_, nullptr);
    End(transfer, absl::OkStatus());
  }
}

// The reply of what has ended goes before the next is posted: that may take longer.
void TransferQueue::End(BulkTransfer& transfer, const absl::Status& status) {
  Host& host = *host_;
  transfer.queue_ = nullptr;
  if (decltype(posted_)::IsLinked(&transfer)) decltype(posted_)::Remove(&transfer);
  if (posted_.empty() && watch_.armed()) host.timers().Cancel(&watch_);
  host.BeginEnd();
  PostedBytes(transfer.push) -= transfer.local.length;
  unreplied_bytes_ += transfer.local.length;
  transfer.OnEnded(/*posted=*/true, status);
  if (unreplied_bytes_ >= limit_.replied_bytes) SendReplies();
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
    waiting_.PushFront(transfer, transfer->priority);
    return;
  }
}

}  // namespace weft
