#include "transport/framing/large_messages.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

namespace weft {

void LargeMessages::Start(FramingDomain* domain, Link* link, uint64_t client,
                          ConnectionSeal* seal) {
  domain_ = domain;
  client_ = client;
  seals_ = seal != nullptr;
  reads_refused_ = opened_last_ = false;
  sender_.Start(domain, client, seals_ ? &seal->large_out : nullptr);
  receiver_.Start(domain, link, client, seals_ ? &seal->large_in : nullptr);
}

void LargeMessages::Cease() {
  receiver_.Cease();
  LeaveLine();
}

void LargeMessages::Stop() {
  receiver_.Stop();
  sender_.Stop();
}

// --- sending ------------------------------------------------------------------------------------

std::byte* LargeMessages::Reserve(size_t bytes) {
  // The offer's place is taken first: Commit() cannot be refused.
  if (!batches_.open() || sender_.full() || !batches_.MakeRoom(FrameBytes(offer_bytes()))) {
    return nullptr;
  }
  std::byte* const data = sender_.Reserve(bytes);
  if (data == nullptr) {
    batches_.CancelEmptyBatch();
    domain_->send_pool().Watch(this, client_);
    return nullptr;
  }
  batches_.Hold(bytes);
  return data;
}

absl::Status LargeMessages::Commit(size_t bytes, bool* is_large) {
  batches_.Unhold();
  *is_large = bytes > LargeOffer::kBytes;
  if (!*is_large) {
    // It takes the offer's place.
    batches_.AppendMessage(ByteSpan(sender_.reserved_data(), bytes));
    sender_.Abandon();
    return absl::OkStatus();
  }
  if (seals_) {
    // Its offer's place is taken once there is something to offer.
    batches_.CancelEmptyBatch();
    sender_.CommitToSeal(bytes);
    FlushDue();
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const LargeOffer offer, sender_.Commit(bytes));
  EncodeLargeOffer(batches_.Append(LargeOffer::kBytes, FrameKind::kLargeOffer), offer);
  return absl::OkStatus();
}

void LargeMessages::Abandon() {
  sender_.Abandon();
  batches_.Abandon();
}

bool LargeMessages::ReclaimLarge(std::unique_ptr<Region> region, Operation* op) {
  return remote_.ReclaimOfLarge(std::move(region), op);
}

// --- receiving ----------------------------------------------------------------------------------

bool LargeMessages::OnOffer(const Frame& frame) {
  LargeOffer offer;
  if (frame.payload.size() != offer_bytes()) return false;
  return DecodeLargeOffer(frame.payload.first(LargeOffer::kBytes), &offer) &&
         receiver_.OnOffer(offer, frame.payload.subspan(LargeOffer::kBytes));
}

bool LargeMessages::OnDone(const Frame& frame) {
  LargeDone done;
  if (!DecodeLargeDone(frame.payload, &done) || !sender_.OnDone(done)) return false;
  host_->OnRoom();
  return true;
}

void LargeMessages::OnLargeDelivered() { FlushDue(); }

void LargeMessages::OnReadFailed(const absl::Status& why) {
  host_->OnLargeFailed(
      absl::Status(why.code(), StrCat("a large message could not be read: ", why.message())));
}

// --- of the turn --------------------------------------------------------------------------------

void LargeMessages::FlushDue() {
  batches_.SetDue();
  batches_.FlushAtTurnsEnd();
}

// Who is the first of a turn has its piece at once. It stands in the line all the same, behind
// which those that come later wait.
bool LargeMessages::TakesTurn() {
  if (!batches_.open()) return false;  // who is shut would not take its turn
  LargeLine& line = domain_->large_line();
  const bool is_first = line.empty() && line.Use(host_->Turn());
  line.Join(this);
  return is_first;
}

void LargeMessages::AppendDue() {
  if (sender_.has_unsealed() && TakesTurn()) sender_.SealNext(domain_->large_piece_bytes());
  if (!batches_.open()) return;
  LargeOffer offer;
  ByteSpan tag;
  while (sender_.NextOffer(&offer, &tag) && batches_.MakeRoom(FrameBytes(offer_bytes()))) {
    std::byte* const to = batches_.Append(offer_bytes(), FrameKind::kLargeOffer);
    EncodeLargeOffer(to, offer);
    std::copy(tag.begin(), tag.end(), to + LargeOffer::kBytes);
    sender_.SentOffer();
  }
  LargeDone done;
  while (receiver_.NextDone(&done) && batches_.MakeRoom(FrameBytes(LargeDone::kBytes))) {
    EncodeLargeDone(batches_.Append(LargeDone::kBytes, FrameKind::kLargeDone), done);
    receiver_.SentDone();
  }
}

void LargeMessages::OnLineTurn() {
  LargeLine& line = domain_->large_line();
  if (!line.IsFirst(this)) return;
  if (!sender_.has_unsealed() && !receiver_.has_read()) return line.Leave(this);
  if (!line.Use(host_->Turn())) return host_->LineTurnSoon();
  opened_last_ = receiver_.has_read() && !(opened_last_ && sender_.has_unsealed());
  if (opened_last_) {
    receiver_.DeliverInTurn();
  } else {
    sender_.SealNext(domain_->large_piece_bytes());
  }
  if (has_due()) FlushDue();
  if (!line.IsFirst(this)) return;  // it has ceased
  if (sender_.has_unsealed() || receiver_.has_read()) {
    line.Yield(this);
  } else {
    line.Leave(this);
  }
}

void LargeMessages::OnSlotsFree() {
  if (std::exchange(reads_refused_, false)) host_->AdvanceReadsSoon();
}

}  // namespace weft
