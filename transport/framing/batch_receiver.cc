#include "transport/framing/batch_receiver.h"

#include <variant>

#include "core/inline.h"
#include "core/strings.h"
#include "core/trace.h"
#include "transport/framing/batch_parts.h"
#include "transport/framing/connection_table.h"
#include "transport/prefetch_list.h"

namespace weft {

WEFT_INLINE uint64_t BatchReceiver::DifferenceOfProof(ByteSpan batch) const {
  const auto* const proof = std::get_if<Nonce128>(&tag_);
  if (proof == nullptr) return 0;
  if (batch.size() < kBatchHeaderBytes + Seal::kTagBytes) return 1;
  const std::byte* const tag = batch.data() + batch.size() - Seal::kTagBytes;
  return (LoadLe64(tag) ^ proof->high) | (LoadLe64(tag + 8) ^ proof->low);
}

// Whether a batch of which nobody knows where it comes from knows what only the peer knows. Token,
// number and proof are compared as one: whoever has guessed one of them, or some bytes, is not told
// so, not even by time.
WEFT_INLINE bool ConnectionTable::IsFor(const Entry& entry, ByteSpan batch,
                                        const BatchHeader& header) {
  if (entry.receiver == nullptr) return false;
  const uint32_t other_sequence = entry.receiver->next_sequence() ^ header.sequence;
  return (uint64_t{(entry.token ^ header.token) | other_sequence} |
          entry.receiver->DifferenceOfProof(batch)) == 0;
}

// Whether it is the peer's all the same: the seal says so, which covers the token. To look at the
// token first would save a stranger's batch its decryption, and tell him by time when he has
// guessed it; he would then have to guess the number alone to end the connection, and not both at
// once.
WEFT_COLD bool ConnectionTable::IsMisplaced(const Entry& entry, ByteSpan batch,
                                            const BatchHeader& header) {
  return entry.receiver != nullptr && entry.link == nullptr &&
         entry.receiver->OnMisplaced(batch, header);
}

// (In this file, so that OnBatch() can be inlined: both run once for each batch.)
void ConnectionTable::OnReceived(ByteSpan batch, LinkHandler* by) {
  Trace(TracePoint::kSeen);
  BatchHeader header;
  if (!DecodeBatchHeader(batch, &header) || header.connection >= entries_.size()) [[unlikely]] {
    return OnUnknown(by);
  }
  // (A link that is told has an entry with a receiver.)
  const Entry& entry = entries_[header.connection];
  if (entry.link != by ||
      (by == nullptr ? !IsFor(entry, batch, header) : entry.token != header.token)) [[unlikely]] {
    if (by != nullptr || !IsMisplaced(entry, batch, header)) OnUnknown(by);
    return;
  }
  if (entry.prefetch->wanted()) [[unlikely]]
    entry.prefetch->Fetch();
  entry.receiver->OnBatch(batch, header);
}

// --- life ---------------------------------------------------------------------------------------

void BatchReceiver::Start(FramingDomain* domain, uint32_t first_sequence, size_t most_early_batches,
                          size_t most_early_bytes, const BatchTag& tag) {
  domain_ = domain;
  tag_ = tag;
  frames_to_part_ = domain->links().frames_to_part();
  sequence_ = first_sequence;
  early_.Start(most_early_batches, most_early_bytes);
}

void BatchReceiver::Stop() {
  domain_ = nullptr;
  tag_ = {};
  early_.Clear();
}

WEFT_COLD void BatchReceiver::Open() {
  for (const std::vector<std::byte>& batch : early_.Take()) {
    BatchHeader header;
    if (!sender_.open() || !DecodeBatchHeader(batch, &header)) return;
    OnBatch(batch, header);
  }
}

WEFT_COLD void BatchReceiver::KeepEarly(ByteSpan batch) {
  if (connection_.state() != Connection::State::kConnecting || domain_ == nullptr) return;
  if (const char* const wrong = early_.Keep(batch); wrong != nullptr) host_->OnMalformed(wrong);
}

// --- batches ------------------------------------------------------------------------------------

WEFT_INLINE void BatchReceiver::OnBatch(ByteSpan batch, const BatchHeader& header) {
  if (!sender_.open()) [[unlikely]]
    return KeepEarly(batch);
  if (tag_.index() != 0) [[unlikely]] {
    const auto* const seal = std::get_if<Seal*>(&tag_);
    batch = seal != nullptr ? Unseal(**seal, batch, header)
                            : batch.first(batch.size() - Seal::kTagBytes);
    if (batch.empty()) return;
  }
  if (const char* const wrong = Account(header); wrong != nullptr) [[unlikely]]
    return host_->OnMalformed(wrong);
  if (IsPart(header.frames, frames_to_part_)) [[unlikely]] {
    if (!TakePart(batch, header.frames)) return;
  } else {
    if (!DispatchFrames(batch, header.frames, [] {})) [[unlikely]]
      return;
    sender_.window().Owe();
  }
  // What waited for credits has them now.
  if (sender_.awaits_room() && sender_.window().MaySendFrames()) [[unlikely]]
    host_->OnRoom();
  if (sender_.window().ShouldReturn() || sender_.due()) [[unlikely]]
    sender_.FlushAtTurnsEnd();
}

// The frames, where no peer and no card can reach them, behind room for a header; nothing: it was
// not sealed for this place.
WEFT_COLD ByteSpan BatchReceiver::Unseal(Seal& seal, ByteSpan batch, const BatchHeader& header) {
  if (header.sequence != sequence_) {
    host_->OnMalformed("a batch out of sequence");
  } else if (batch.size() < kBatchHeaderBytes + Seal::kTagBytes) {
    host_->OnMalformed("a batch without a seal");
  } else {
    const size_t bytes = batch.size() - Seal::kTagBytes;
    const MutableByteSpan opened = domain_->opened_batch().first(bytes);
    if (seal.Decrypt(batch.first(kBatchHeaderBytes), batch.first(bytes).subspan(kBatchHeaderBytes),
                     batch.subspan(bytes), opened.data() + kBatchHeaderBytes)) {
      return opened;
    }
    host_->OnMalformed("a batch whose seal is broken");
  }
  return {};
}

WEFT_COLD bool BatchReceiver::OnMisplaced(ByteSpan batch, const BatchHeader& header) {
  const auto* const seal = std::get_if<Seal*>(&tag_);
  if (seal == nullptr || !sender_.open() || batch.size() < kBatchHeaderBytes + Seal::kTagBytes) {
    return false;
  }
  const size_t bytes = batch.size() - Seal::kTagBytes;
  const auto distance = static_cast<int32_t>(header.sequence - sequence_);
  const bool is_peers = (*seal)->IsRecordAt(
      distance, batch.first(kBatchHeaderBytes), batch.first(bytes).subspan(kBatchHeaderBytes),
      batch.subspan(bytes), domain_->opened_batch().data() + kBatchHeaderBytes);
  if (is_peers) host_->OnMalformed("a batch out of sequence");
  return is_peers;
}

// A batch that is answered by itself, and where its sender waits, in parts (batch_parts.h). False:
// the connection is not open any more.
bool BatchReceiver::TakePart(ByteSpan batch, uint16_t frames) {
  if (frames >= frames_to_part_ && sender_.window().has_all()) {
    if (!DispatchInParts(batch, frames)) return false;
  } else if (!DispatchFrames(batch, frames, [] {})) {
    return false;
  }
  sender_.window().Owe();
  sender_.SendNow();
  return true;
}

// What each part of the batch has brought about leaves behind its last frame. As TakePart().
bool BatchReceiver::DispatchInParts(ByteSpan batch, uint16_t frames) {
  sender_.BeginPart(frames);
  const uint32_t part = FramesOfPart(frames);
  uint32_t left = part;
  const bool open = DispatchFrames(batch, frames, [this, part, &left] {
    if (--left > 0) return;
    left = part;
    sender_.SendNow();
  });
  if (open) sender_.EndPart();
  return open;
}

// Takes note of what the header says; else what is wrong with it.
WEFT_INLINE const char* BatchReceiver::Account(const BatchHeader& header) {
  CreditWindow& window = sender_.window();
  if (header.sequence != sequence_) return "a batch out of sequence";
  ++sequence_;
  if (!window.Arrive()) return "a batch without a credit";
  domain_->Settle(1);
  if (!window.Regain(header.credits, sender_.unsent_batches()))
    return "more credits than were ever granted";
  ++batches_;
  return nullptr;
}

// --- frames -------------------------------------------------------------------------------------

// after() runs behind each frame. False: the connection is not open any more.
template <class After>
WEFT_INLINE bool BatchReceiver::DispatchFrames(ByteSpan batch, uint16_t frames, After after) {
  BatchReader reader(batch, frames);
  while (!reader.at_end()) {
    ByteSpan message;
    if (reader.NextMessage(&message)) [[likely]] {
      ++messages_;
      // (A copy, and one of the reader below: GCC keeps in memory what it passes as it is.)
      handler_->OnMessage(connection_, ByteSpan(message.data(), message.size()));
    } else {
      BatchReader rest = reader;
      if (!TakeOtherFrame(rest)) break;
      reader = rest;
    }
    if (!sender_.open()) [[unlikely]]
      return false;
    after();
  }
  if (reader.complete()) [[likely]]
    return true;
  host_->OnMalformed("frames that do not fill their batch");
  return false;
}

// False: the next frame is malformed, or there is none.
WEFT_COLD bool BatchReceiver::TakeOtherFrame(BatchReader& reader) {
  Frame frame;
  if (!reader.Next(&frame)) return false;
  if (!host_->OnFrame(frame)) {
    host_->OnMalformed(StrCat("a bad frame of kind ", static_cast<int>(frame.kind)));
  }
  return true;
}

}  // namespace weft
