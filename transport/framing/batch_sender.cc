#include "transport/framing/batch_sender.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/trace.h"
#include "transport/framing/batch_parts.h"

namespace weft {
namespace {

constexpr uint32_t WholeFrames(uint32_t bytes) {
  return bytes & ~static_cast<uint32_t>(kFrameAlignment - 1);
}

}  // namespace

// --- life ---------------------------------------------------------------------------------------

void BatchSender::Start(FramingDomain* domain, Link* link, const LinkAgreement& agreement,
                        const BatchTag& tag) {
  WEFT_CHECK(link_ == nullptr && !open_);  // Ours: one link at a time, and Stop() between
  domain_ = domain;
  links_ = &domain->links();
  link_ = link;
  window_.Start(agreement.send_window_slots, agreement.receive_window_slots);
  domain_->Promise(agreement.receive_window_slots);
  tag_ = tag;
  const uint32_t tag_bytes = tag.index() != 0 ? Seal::kTagBytes : 0;
  batch_bytes_ = WholeFrames(agreement.batch_bytes - tag_bytes);
  usual_bytes_ = std::min(batch_bytes_, WholeFrames(links_->usual_slot_bytes() - tag_bytes));
  fill_bytes_ = usual_bytes_;
  eager_bytes_ = MaxPayloadBytes(batch_bytes_);
  peer_index_ = agreement.peer_index;
  peer_token_ = agreement.peer_token;
  sequence_ = agreement.send_sequence;
}

void BatchSender::Stop() {
  WEFT_CHECK(!open_);  // Ours: the connection shuts it first
  reserved_ = false;
  if (slot_.data != nullptr) CancelOpenSlot();
  domain_->Settle(window_.granted());
  batch_bytes_ = usual_bytes_ = fill_bytes_ = 0;
  eager_bytes_ = 0;
  tag_ = {};
  link_ = nullptr;
}

// --- slots --------------------------------------------------------------------------------------

// `slot` is the open one, to be filled up to `bytes`, or as far as it goes; false: it is none.
// REQUIRES: there is none, and a credit.
WEFT_INLINE bool BatchSender::Take(SendSlot slot, uint32_t bytes) {
  if (slot.data == nullptr) [[unlikely]]
    return false;
  slot_ = slot;
  window_.Spend();
  room_.Open(slot.data + kBatchHeaderBytes, std::min(bytes, slot.room) - kBatchHeaderBytes);
  return true;
}

// A usual one, for a first frame of `frame_bytes`, 0: for a header alone.
// REQUIRES: it fits into usual_bytes_.
WEFT_INLINE bool BatchSender::TakeSlot(size_t frame_bytes) {
  const auto least = static_cast<uint32_t>(kBatchHeaderBytes + frame_bytes);
  return Take(link_->TakeSlot(least), std::max(fill_bytes_, least));
}

// As OpenNextSlot(). A message on its own, and the first of many, finds no slot open and fits into
// a usual one.
WEFT_INLINE bool BatchSender::OpenFirstSlot(size_t frame_bytes) {
  const bool fits = frame_bytes <= usual_bytes_ - kBatchHeaderBytes;
  if (slot_.data != nullptr || !fits) [[unlikely]]
    return OpenNextSlot(frame_bytes);
  if (!open_) [[unlikely]]
    return false;
  if (!window_.MaySendFrames() || !TakeSlot(frame_bytes)) [[unlikely]] {
    ++credit_stalls_;
    return false;
  }
  // For all that will be appended.
  FlushAtTurnsEnd();
  return true;
}

// The rest of MakeRoom(): the open slot is full, or there is none. Behind one that this turn has
// filled there may be as much again.
bool BatchSender::OpenNextSlot(size_t frame_bytes) {
  if (!open_) return false;
  const bool more = slot_.data != nullptr;
  if (more && GrowOpenSlot(frame_bytes)) return true;
  if (more) {
    SendOpenSlot();
    if (!open_) return false;
  }
  const bool fits = frame_bytes <= usual_bytes_ - kBatchHeaderBytes;
  const bool wide = !fits || (more && batch_bytes_ > usual_bytes_);
  const auto take_wide = [this] {
    return Take(link_->HasRoom() ? links_->AcquireWideSlot() : SendSlot(), batch_bytes_);
  };
  if (!window_.MaySendFrames() || !((wide && take_wide()) || (fits && TakeSlot(frame_bytes)))) {
    ++credit_stalls_;
    return false;
  }
  FlushAtTurnsEnd();
  return true;
}

// The open slot was not as large as others, and a frame more makes no longer a batch than it may
// be.
bool BatchSender::GrowOpenSlot(size_t frame_bytes) {
  const auto used = static_cast<uint32_t>(room_.next() - slot_.data);
  if (slot_.room >= fill_bytes_ || used + frame_bytes > fill_bytes_) return false;
  if (!link_->GrowSlot(&slot_, used)) return false;
  room_.MoveTo(slot_.data + used, std::min(fill_bytes_, slot_.room) - used);
  return true;
}

void BatchSender::CancelOpenSlot() {
  links_->ReleaseSlot(std::exchange(slot_, {}));
  window_.Refund();
  room_.Close();
}

// --- messages -----------------------------------------------------------------------------------

std::byte* BatchSender::Reserve(size_t bytes) {
  const size_t frame_bytes = FrameBytes(bytes);
  if (!MakeRoom(frame_bytes)) return nullptr;
  room_.ClearPaddingOfNext(frame_bytes);
  Hold(bytes);
  return room_.next() + kFrameHeaderBytes;
}

void BatchSender::Commit(size_t bytes) {
  reserved_ = false;
  std::byte* const payload = Append(bytes, FrameKind::kMessage);
  if (bytes != reserved_bytes_) ClearPadding(payload, bytes);
}

void BatchSender::Abandon() {
  reserved_ = false;
  if (room_.frames() == 0) return CancelOpenSlot();
  FlushAtTurnsEnd();  // a turn that ended meanwhile has left the batch alone
}

void BatchSender::AppendMessage(ByteSpan message) {
  std::byte* const payload = Append(message.size(), FrameKind::kMessage);
  std::memcpy(payload, message.data(), message.size());
  ClearPadding(payload, message.size());
}

MessageSpace BatchSender::AppendToNextSlot(size_t bytes) {
  const size_t frame_bytes = FrameBytes(bytes);
  if (!OpenFirstSlot(frame_bytes)) [[unlikely]] {
    awaits_room_ = true;
    return {};
  }
  return room_.AppendMessage(bytes);
}

// --- sending ------------------------------------------------------------------------------------

// The open batch gets its header, and the room is closed. Returns its length. `slot_` is to be
// sent.
WEFT_INLINE uint32_t BatchSender::FinishBatch() {
  const uint16_t credits = window_.TakeOwed();
  domain_->Promise(credits);
#ifndef NDEBUG
  domain_->CheckInvariants();
#endif
  EncodeBatchHeader(slot_.data, {peer_index_, peer_token_, credits, room_.frames(), sequence_++});
  ++batches_sent_;
  first_unsent_ = room_.committed();
  const auto bytes = static_cast<uint32_t>(room_.next() - slot_.data);
  sent_bytes_ = bytes;
  sent_frames_ = room_.frames();
  room_.Close();
  if (tag_.index() != 0) [[unlikely]]
    return AppendTag(bytes);
  return bytes;
}

// Returns the length with it. A batch is sealed in its place, for the slot is this process's alone:
// where a peer can see it, nothing is sealed.
WEFT_COLD uint32_t BatchSender::AppendTag(uint32_t bytes) {
  std::byte* const tag = slot_.data + bytes;
  if (const auto* const proof = std::get_if<Nonce128>(&tag_); proof != nullptr) {
    StoreLe64(tag, proof->high);
    StoreLe64(tag + 8, proof->low);
  } else if (const auto* const seal = std::get_if<Seal*>(&tag_); seal != nullptr) {
    const MutableByteSpan batch(slot_.data, bytes);
    const MutableByteSpan frames = batch.subspan(kBatchHeaderBytes);
    (*seal)->Encrypt(batch.first(kBatchHeaderBytes), frames, frames.data(), tag);
  }
  return bytes + Seal::kTagBytes;
}

// A failure is reported by OnLinkDown(): this batch may have left, or not, like those before it.
WEFT_INLINE void BatchSender::SendOpenSlot() {
  const uint32_t bytes = FinishBatch();
  Trace(TracePoint::kSending);
  link_->Send(slot_, bytes).IgnoreError();
  slot_.data = nullptr;
  Trace(TracePoint::kSent);
}

void BatchSender::SendNow() {
  if (room_.frames() > 0 && !reserved_) SendOpenSlot();
}

void BatchSender::Flush() {
  if (!open_ || room_.frames() == 0 || reserved_) return;
  SendOpenSlot();
  if (!window_.ShouldReturn() && !due_) list_.Remove(this);
}

// Where credits or slots are wanting, a batch of the peer's or OnSlotsFree() lists the sender
// again.
void BatchSender::FlushTurn() {
  if (!open_ || reserved_) return;
  if (due_) [[unlikely]]
    due_ = host_->AppendDue();
  if (room_.frames() > 0) SendOpenSlot();
  if (window_.ShouldReturn() && open_ && window_.MayReturnOnly() && TakeSlot(0)) [[unlikely]]
    SendOpenSlot();
}

bool BatchSender::SendFence(Operation* passed) {
  const bool has_slot = slot_.data != nullptr;
  if (reserved_ || !open_ || (!has_slot && !(window_.MaySendFrames() && TakeSlot(0)))) return false;
  link_->SendFence(slot_, FinishBatch(), passed).IgnoreError();
  slot_.data = nullptr;
  return true;
}

void BatchSender::BeginPart(uint16_t frames) {
  fill_bytes_ = PartBytes(frames, {sent_bytes_, sent_frames_}, usual_bytes_);
}

void BatchSender::CheckInvariants() const {
  window_.CheckInvariants();
  // Ours: invariants, which tests ask for
  WEFT_CHECK(first_unsent_ <= room_.committed());
  WEFT_CHECK(slot_.data != nullptr || (room_.room() == 0 && room_.frames() == 0));
  // Ours: the connection shuts it first
  WEFT_CHECK(slot_.data == nullptr || reserved_ || !open_ || list_.IsLinked(this));
}

}  // namespace weft
