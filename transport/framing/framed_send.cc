// The sending half of FramedConnection.

#include <cstring>
#include <utility>

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

// --- slots --------------------------------------------------------------------------------------

// As OpenNextSlot(). A message on its own, and the first of many, finds no slot open and fits into
// a usual one.
WEFT_INLINE bool FramedConnection::OpenFirstSlot(size_t frame_bytes) {
  const bool fits = frame_bytes <= usual_bytes_ - kBatchHeaderBytes;
  if (slot_.data != nullptr || !fits) [[unlikely]]
    return OpenNextSlot(frame_bytes);
  if (state_ != State::kOpen) [[unlikely]]
    return false;
  if (!window_.MaySendFrames() || !TakeSlot(frame_bytes)) [[unlikely]] {
    ++stats_.credit_stalls;
    return false;
  }
  // For all that will be appended.
  MarkDirty();
  return true;
}

// The rest of MakeRoom(): the open slot is full, or there is none. Behind one that this turn has
// filled there may be as much again.
bool FramedConnection::OpenNextSlot(size_t frame_bytes) {
  if (state_ != State::kOpen) return false;
  const bool more = slot_.data != nullptr;
  if (more && GrowOpenSlot(frame_bytes)) return true;
  if (more) SendOpenSlot();
  const bool fits = frame_bytes <= usual_bytes_ - kBatchHeaderBytes;
  const bool wide = !fits || (more && batch_bytes_ > usual_bytes_);
  const auto take_wide = [this] {
    return Open(link_->HasRoom() ? links_->AcquireWideSlot() : SendSlot(), batch_bytes_);
  };
  if (!window_.MaySendFrames() || !((wide && take_wide()) || (fits && TakeSlot(frame_bytes)))) {
    ++stats_.credit_stalls;
    return false;
  }
  MarkDirty();
  return true;
}

// The open slot was not as large as others, and a frame more makes no longer a batch than it may
// be.
bool FramedConnection::GrowOpenSlot(size_t frame_bytes) {
  const auto used = static_cast<uint32_t>(batch_.next() - slot_.data);
  if (slot_.room >= fill_bytes_ || used + frame_bytes > fill_bytes_) return false;
  if (!link_->GrowSlot(&slot_, used)) return false;
  batch_.MoveTo(slot_.data + used, std::min(fill_bytes_, slot_.room) - used);
  return true;
}

void FramedConnection::CancelOpenSlot() {
  links_->ReleaseSlot(std::exchange(slot_, {}));
  window_.Refund();
  batch_.Close();
}

// --- messages -----------------------------------------------------------------------------------

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
  const size_t frame_bytes = FrameBytes(bytes);
  if (!OpenFirstSlot(frame_bytes)) [[unlikely]] {
    wants_writable_ = true;
    return {};
  }
  batch_.ClearPaddingOfNext(frame_bytes);
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
  if (window_.ShouldReturn() && window_.MayReturnOnly() && TakeSlot(0)) [[unlikely]]
    SendOpenSlot();
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
