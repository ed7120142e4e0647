// Steps that FramedConnection's source files share, and that every message takes.
#pragma once

#include <algorithm>

#include "core/inline.h"
#include "core/trace.h"
#include "transport/framing/framed_connection.h"

namespace weft {

// Makes sure that a frame of `frame_bytes` fits into the open slot.
inline bool FramedConnection::MakeRoom(size_t frame_bytes) {
  return batch_.Fits(frame_bytes) || OpenNextSlot(frame_bytes);
}

// The turn's end looks at this connection.
inline void FramedConnection::MarkDirty() {
  if (!table_->dirty_.IsLinked(this)) table_->dirty_.PushBack(this);
}

// `slot` is the open one, to be filled up to `bytes`, or as far as it goes; false: it is none.
// REQUIRES: there is none, and a credit.
WEFT_INLINE bool FramedConnection::Open(SendSlot slot, uint32_t bytes) {
  if (slot.data == nullptr) [[unlikely]]
    return false;
  slot_ = slot;
  window_.Spend();
  batch_.Open(slot.data + kBatchHeaderBytes, std::min(bytes, slot.room) - kBatchHeaderBytes);
  return true;
}

// A usual one, for a first frame of `frame_bytes`, 0: for a header alone.
// REQUIRES: it fits into usual_bytes_.
WEFT_INLINE bool FramedConnection::TakeSlot(size_t frame_bytes) {
  const auto least = static_cast<uint32_t>(kBatchHeaderBytes + frame_bytes);
  return Open(link_->TakeSlot(least), std::max(fill_bytes_, least));
}

// The open batch gets its header, and is closed; `slot_` was its slot. Returns its length.
WEFT_INLINE uint32_t FramedConnection::FinishBatch() {
  const uint16_t credits = window_.TakeOwed();
  domain_->Promise(credits);
#ifndef NDEBUG
  domain_->CheckInvariants();
#endif
  EncodeBatchHeader(slot_.data,
                    {peer_index_, peer_token_, credits, batch_.frames(), send_sequence_++});
  ++stats_.batches_sent;
  stats_.messages_sent = first_unsent_ = committed_;
  const auto bytes = static_cast<uint32_t>(batch_.next() - slot_.data);
  sent_bytes_ = bytes;
  sent_frames_ = batch_.frames();
  batch_.Close();
  slot_.data = nullptr;
  return bytes;
}

// A failure is reported by OnLinkDown(): this batch may have left, or not, like those before it.
WEFT_INLINE void FramedConnection::SendOpenSlot() {
  const SendSlot slot = slot_;
  const uint32_t bytes = FinishBatch();
  Trace(TracePoint::kSending);
  link_->Send(slot, bytes).IgnoreError();
  Trace(TracePoint::kSent);
}

}  // namespace weft
