// The receiving half of FramedConnection.

#include "core/check.h"
#include "core/strings.h"
#include "transport/framing/framed_connection.h"

namespace weft {

void FramedConnection::OnBatch(ByteSpan batch, const BatchHeader& header) {
  if (state_ != State::kOpen) return KeepEarly(batch);
  if (header.sequence != receive_sequence_) return Malformed("a batch out of sequence");
  ++receive_sequence_;
  if (!window_.Arrive()) return Malformed("a batch without a credit");
  domain_->Settle(1);
  if (!window_.Regain(header.credits)) return Malformed("more credits than were ever granted");
  ++stats_.batches_received;
  if (!DispatchFrames(batch, header.frames)) return;
  window_.Owe();
  // What waited for credits has them now.
  if (wants_writable_ && window_.MaySendFrames()) Raise(kWritable);
  if (window_.ShouldReturn() || large_receiver_.has_done() || request_answerer_.has_reply() ||
      reclaimer_.wants_advance()) {
    MarkDirty();
  }
}

// False: the connection is not open any more.
bool FramedConnection::DispatchFrames(ByteSpan batch, uint16_t frames) {
  BatchReader reader(batch, frames);
  Frame frame;
  while (reader.Next(&frame)) {
    if (frame.kind == FrameKind::kMessage) {
      ++stats_.messages_received;
      handler_->OnMessage(*this, frame.payload);
    } else if (!OnOtherFrame(frame)) {
      Malformed(StrCat("a bad frame of kind ", static_cast<int>(frame.kind)));
    }
    if (state_ != State::kOpen) return false;
  }
  if (!reader.complete()) Malformed("frames that do not fill their batch");
  return state_ == State::kOpen;
}

bool FramedConnection::OnOtherFrame(const Frame& frame) {
  LargeOffer offer;
  LargeDone done;
  switch (frame.kind) {
    case FrameKind::kLargeOffer:
      return DecodeLargeOffer(frame.payload, &offer) && large_receiver_.OnOffer(offer);
    case FrameKind::kLargeDone:
      if (!DecodeLargeDone(frame.payload, &done) || !large_sender_.OnDone(done)) return false;
      if (wants_writable_) Raise(kWritable);
      return true;
    case FrameKind::kRequest:
      return OnRequestFrame(frame);
    case FrameKind::kReply:
      return OnReplyFrame(frame);
    default:
      return false;
  }
}

// The peer may have opened already, and have sent something before its word of that has come here.
void FramedConnection::KeepEarly(ByteSpan batch) {
  if (state_ != State::kConnecting || link_ == nullptr) return;
  if (early_.size() == window_.receive_window()) return Malformed("a batch without a credit");
  early_.emplace_back(batch.begin(), batch.end());
}

void FramedConnection::DeliverEarly() {
  const auto batches = std::move(early_);
  early_.clear();
  for (const std::vector<std::byte>& batch : batches) {
    BatchHeader header;
    if (state_ != State::kOpen || !DecodeBatchHeader(batch, &header)) return;
    OnBatch(batch, header);
  }
}

void FramedConnection::Malformed(std::string_view what) {
  ++table_->stats_.batches_malformed;
  Break(absl::DataLossError(StrCat("the peer broke the protocol: ", what)));
}

// --- large messages -----------------------------------------------------------------------------

void FramedConnection::DeliverLarge(ByteSpan message) {
  if (state_ != State::kOpen) return;
  ++stats_.messages_received;
  ++stats_.large_received;
  handler_->OnMessage(*this, message);
}

void FramedConnection::OnLargeDelivered() { MarkDirty(); }

void FramedConnection::OnReadRefused() { reads_refused_ = true; }

void FramedConnection::OnReadFailed(const absl::Status& why) {
  Break(absl::Status(why.code(), StrCat("a large message could not be read: ", why.message())));
}

}  // namespace weft
