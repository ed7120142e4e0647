// The receiving half of FramedConnection.

#include "core/check.h"
#include "core/inline.h"
#include "core/strings.h"
#include "core/trace.h"
#include "transport/framing/batch_parts.h"
#include "transport/framing/framed_steps.h"
#include "transport/warm_up.h"

namespace weft {

void ConnectionTable::OnReceived(ByteSpan batch) {
  Trace(TracePoint::kSeen);
  BatchHeader header;
  if (!DecodeBatchHeader(batch, &header) || header.connection >= entries_.size()) [[unlikely]] {
    ++stats_.batches_unknown;
    return;
  }
  const Entry& entry = entries_[header.connection];
  if (entry.connection == nullptr || entry.token != header.token) [[unlikely]] {
    ++stats_.batches_unknown;
    return;
  }
  if (entry.lines != nullptr && entry.lines->wanted()) [[unlikely]]
    entry.lines->Fetch();
  entry.connection->OnBatch(batch, header);
}

WEFT_INLINE void FramedConnection::OnBatch(ByteSpan batch, const BatchHeader& header) {
  if (state_ != State::kOpen) [[unlikely]]
    return KeepEarly(batch);
  if (const char* const wrong = Account(header); wrong != nullptr) [[unlikely]]
    return Malformed(wrong);
  if (IsPart(header.frames, frames_to_part_)) [[unlikely]] {
    if (!TakePart(batch, header)) return;
  } else {
    if (!DispatchFrames(batch, header.frames)) [[unlikely]]
      return;
    window_.Owe();
  }
  // What waited for credits has them now.
  if (wants_writable_ && window_.MaySendFrames()) [[unlikely]]
    Raise(kWritable);
  if (window_.ShouldReturn() || due_) [[unlikely]]
    MarkDirty();
}

// A batch that is answered by itself, and where its sender waits, in parts (batch_parts.h). False:
// the connection is not open any more.
bool FramedConnection::TakePart(ByteSpan batch, const BatchHeader& header) {
  if (header.frames >= frames_to_part_ && window_.has_all()) {
    fill_bytes_ = PartBytes(header.frames, {sent_bytes_, sent_frames_}, usual_bytes_);
  }
  if (!DispatchFrames(batch, header.frames)) return false;
  fill_bytes_ = usual_bytes_;
  window_.Owe();
  // (It stays in the list of those to flush: once a turn, not once a part.)
  if (batch_.frames() > 0 && !reserved_) SendOpenSlot();
  return true;
}

// Takes note of what the header says; else what is wrong with it.
WEFT_INLINE const char* FramedConnection::Account(const BatchHeader& header) {
  if (header.sequence != receive_sequence_) return "a batch out of sequence";
  ++receive_sequence_;
  if (!window_.Arrive()) return "a batch without a credit";
  domain_->Settle(1);
  if (!window_.Regain(header.credits)) return "more credits than were ever granted";
  ++stats_.batches_received;
  return nullptr;
}

// False: the connection is not open any more.
WEFT_INLINE bool FramedConnection::DispatchFrames(ByteSpan batch, uint16_t frames) {
  BatchReader reader(batch, frames);
  while (!reader.at_end()) {
    ByteSpan message;
    if (reader.NextMessage(&message)) [[likely]] {
      ++stats_.messages_received;
      // (A copy, and one of the reader below: GCC keeps in memory what it passes as it is.)
      handler_->OnMessage(*this, ByteSpan(message.data(), message.size()));
    } else {
      BatchReader rest = reader;
      if (!TakeOtherFrame(rest)) break;
      reader = rest;
    }
    if (state_ != State::kOpen) [[unlikely]]
      return false;
  }
  if (reader.complete()) [[likely]]
    return true;
  Malformed("frames that do not fill their batch");
  return false;
}

// False: the next frame is malformed, or there is none.
WEFT_COLD bool FramedConnection::TakeOtherFrame(BatchReader& reader) {
  Frame frame;
  if (!reader.Next(&frame)) return false;
  if (!IsTaken(frame)) Malformed(StrCat("a bad frame of kind ", static_cast<int>(frame.kind)));
  return true;
}

// False: no peer of this protocol sends it.
bool FramedConnection::IsTaken(const Frame& frame) {
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

WEFT_COLD void FramedConnection::KeepEarly(ByteSpan batch) {
  if (state_ != State::kConnecting || link_ == nullptr) return;
  if (const char* const wrong = early_.Keep(batch); wrong != nullptr) Malformed(wrong);
}

WEFT_COLD void FramedConnection::DeliverEarly() {
  for (const std::vector<std::byte>& batch : early_.Take()) {
    BatchHeader header;
    if (state_ != State::kOpen || !DecodeBatchHeader(batch, &header)) return;
    OnBatch(batch, header);
  }
}

WEFT_COLD void FramedConnection::Malformed(std::string_view what) {
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

void FramedConnection::OnLargeDelivered() {
  due_ = true;
  MarkDirty();
}

void FramedConnection::OnReadRefused() { reads_refused_ = true; }

void FramedConnection::OnReadDone() { Raise(kAdvanceReads); }

void FramedConnection::OnReadFailed(const absl::Status& why) {
  Break(absl::Status(why.code(), StrCat("a large message could not be read: ", why.message())));
}

}  // namespace weft
