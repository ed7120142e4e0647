// The sending half of FramedConnection.

#include <cstring>

#include "core/check.h"
#include "core/inline.h"
#include "core/trace.h"
#include "transport/framing/framed_steps.h"

namespace weft {
namespace {

// Refusals are part of normal operation: their texts are made once.
const absl::Status& NotOpen() {
  static const auto* const status =
      new absl::Status(absl::FailedPreconditionError("the connection is not open"));
  return *status;
}

const absl::Status& NoRoomNow() {
  static const auto* const status = new absl::Status(absl::ResourceExhaustedError(
      "the peer has not taken what was sent yet: wait for OnWritable()"));
  return *status;
}

const absl::Status& TooLarge() {
  static const auto* const status = new absl::Status(
      absl::InvalidArgumentError("the message is larger than 64 MiB: use one-sided transfers"));
  return *status;
}

}  // namespace

absl::StatusOr<std::byte*> FramedConnection::Reserve(size_t bytes) {
  WEFT_DCHECK(!reserved_);
  if (bytes > eager_bytes_) return ReserveLarge(bytes);
  const size_t frame_bytes = FrameBytes(bytes);
  if (!MakeRoom(frame_bytes)) return Refuse();
  batch_.ClearPaddingOfNext(frame_bytes);
  reserved_ = true;
  reserved_bytes_ = static_cast<uint32_t>(bytes);
  return batch_.next() + kFrameHeaderBytes;
}

uint64_t FramedConnection::Commit(size_t bytes) {
  WEFT_DCHECK(reserved_ && bytes <= reserved_bytes_);
  reserved_ = false;
  if (large_sender_.reserved()) {
    CommitLarge(bytes);
  } else {
    std::byte* const payload = batch_.Append(bytes, FrameKind::kMessage);
    if (bytes != reserved_bytes_) ClearPadding(payload, bytes);
  }
  MarkDirty();
  Trace(TracePoint::kWritten);
  return committed_++;
}

void FramedConnection::Abandon() {
  WEFT_DCHECK(reserved_);
  reserved_ = false;
  if (large_sender_.reserved()) large_sender_.Abandon();
  if (batch_.frames() == 0) return CancelOpenSlot();
  MarkDirty();  // a turn that ended meanwhile has left the batch alone
}

MessageSpace FramedConnection::AppendSlowly(size_t bytes) {
  WEFT_DCHECK(!reserved_);
  if (bytes > eager_bytes_) [[unlikely]]
    return AppendLarge(bytes);
  if (!OpenNextSlot(FrameBytes(bytes))) [[unlikely]] {
    wants_writable_ = true;
    return {};
  }
  batch_.ClearPaddingOfNext(FrameBytes(bytes));
  return {batch_.Append(bytes, FrameKind::kMessage), committed_++};
}

void FramedConnection::Flush() {
  if (state_ != State::kOpen || batch_.frames() == 0 || reserved_) return;
  SendOpenSlot();
  if (!window_.ShouldReturn() && !due_) table_->dirty_.Remove(this);
}

// Where credits or slots are wanting, OnBatch() or OnSlotsFree() marks the connection again.
void FramedConnection::FlushTurn() {
  if (state_ != State::kOpen || reserved_) return;
  if (due_) [[unlikely]]
    AppendDue();
  if (batch_.frames() > 0) SendOpenSlot();
  if (window_.ShouldReturn() && window_.MayReturnOnly() && TakeSlot()) SendOpenSlot();
}

// What this side's framing itself has to say. What finds no room stays due.
WEFT_COLD void FramedConnection::AppendDue() {
  AppendDones();
  AppendReplies();
  if (reclaimer_.wants_advance()) reclaimer_.Advance();
  due_ = IsDue();
}

bool FramedConnection::IsDue() const {
  return large_receiver_.has_done() || request_answerer_.has_reply() || reclaimer_.wants_advance();
}

// The rest of MakeRoom(): the open slot is full, or there is none.
bool FramedConnection::OpenNextSlot(size_t frame_bytes) {
  if (state_ != State::kOpen) return false;
  const bool more = slot_.data != nullptr;
  if (more) SendOpenSlot();
  if (!window_.MaySendFrames()) {
    ++stats_.credit_stalls;
    return false;
  }
  if (!TakeSlot(frame_bytes, more)) return false;
  // For all that will be appended.
  MarkDirty();
  return true;
}

// Opens a slot. `more`: this turn has filled one already, and may have as much again.
// REQUIRES: there is none, and a credit for it.
bool FramedConnection::TakeSlot(size_t frame_bytes, bool more) {
  if (!link_->HasRoom()) {
    ++stats_.credit_stalls;
    return false;
  }
  const bool fits = frame_bytes <= usual_bytes_ - kBatchHeaderBytes;
  uint32_t bytes = batch_bytes_;
  if (!fits || (more && batch_bytes_ > usual_bytes_)) slot_ = links_->AcquireWideSlot();
  if (slot_.data == nullptr && fits) {
    slot_ = links_->AcquireSlot();
    bytes = usual_bytes_;
  }
  if (slot_.data == nullptr) return false;
  window_.Spend();
  batch_.Open(slot_.data + kBatchHeaderBytes, bytes - kBatchHeaderBytes);
  return true;
}

void FramedConnection::SendOpenSlot(Operation* fence) {
  const uint16_t credits = window_.TakeOwed();
  domain_->Promise(credits);
#ifndef NDEBUG
  domain_->CheckInvariants();
#endif
  EncodeBatchHeader(slot_.data,
                    {peer_index_, peer_token_, credits, batch_.frames(), send_sequence_++});
  const auto bytes = static_cast<uint32_t>(batch_.next() - slot_.data);
  Trace(TracePoint::kSending);
  // A failure is reported by OnLinkDown(): this batch may have left, or not, like those before it.
  if (fence == nullptr) {
    link_->Send(slot_, bytes).IgnoreError();
  } else {
    link_->SendFence(slot_, bytes, fence).IgnoreError();
  }
  Trace(TracePoint::kSent);
  CloseSlot();
  ++stats_.batches_sent;
  stats_.messages_sent = first_unsent_ = committed_;
}

void FramedConnection::CancelOpenSlot() {
  links_->ReleaseSlot(slot_);
  window_.Refund();
  CloseSlot();
}

void FramedConnection::CloseSlot() {
  slot_ = {};
  batch_.Close();
}

WEFT_COLD absl::StatusOr<std::byte*> FramedConnection::ReserveLarge(size_t bytes) {
  if (bytes > kMaxMessageBytes) return TooLarge();
  // The offer's place is taken first: Commit() cannot be refused.
  if (state_ != State::kOpen || large_sender_.full() || !MakeRoom(FrameBytes(LargeOffer::kBytes))) {
    return Refuse();
  }
  std::byte* const data = large_sender_.Reserve(bytes);
  if (data == nullptr) {
    if (batch_.frames() == 0) CancelOpenSlot();
    domain_->send_pool().Watch(this);
    return Refuse();
  }
  reserved_ = true;
  reserved_bytes_ = static_cast<uint32_t>(bytes);
  return data;
}

void FramedConnection::CommitLarge(size_t bytes) {
  // What came out no longer than the offer takes the offer's place.
  if (bytes <= LargeOffer::kBytes) {
    std::byte* const payload = batch_.Append(bytes, FrameKind::kMessage);
    std::memcpy(payload, large_sender_.reserved_data(), bytes);
    ClearPadding(payload, bytes);
    large_sender_.Abandon();
    return;
  }
  const absl::StatusOr<LargeOffer> offer = large_sender_.Commit(bytes);
  if (!offer.ok()) return Break(offer.status());
  EncodeLargeOffer(batch_.Append(LargeOffer::kBytes, FrameKind::kLargeOffer), *offer);
  ++stats_.large_sent;
}

WEFT_COLD MessageSpace FramedConnection::AppendLarge(size_t bytes) {
  const absl::StatusOr<std::byte*> space = Reserve(bytes);
  if (!space.ok()) return {};
  const uint64_t number = Commit(bytes);
  if (state_ != State::kOpen) return {};
  return {*space, number};
}

WEFT_COLD absl::StatusOr<std::byte*> FramedConnection::Refuse() {
  if (state_ != State::kOpen) return NotOpen();
  wants_writable_ = true;
  return NoRoomNow();
}

void FramedConnection::AppendDones() {
  LargeDone done;
  while (large_receiver_.NextDone(&done) && MakeRoom(FrameBytes(LargeDone::kBytes))) {
    EncodeLargeDone(batch_.Append(LargeDone::kBytes, FrameKind::kLargeDone), done);
    large_receiver_.SentDone();
  }
}

}  // namespace weft
