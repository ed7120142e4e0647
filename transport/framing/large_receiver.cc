#include "transport/framing/large_receiver.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"
#include "transport/framing/sealed_regions.h"
#include "transport/path.h"
#include "transport/transfer_table.h"

namespace weft {

LargeReceiver::LargeReceiver(Host* host, const LargePatience& patience)
    : host_(host), patience_(patience) {
  for (Incoming& incoming : ring_) incoming.receiver = this;
}

void LargeReceiver::Start(FramingDomain* domain, Link* link, uint64_t client, Seal* seal) {
  WEFT_CHECK(!active_);  // Ours: Cease() comes first
  domain_ = domain;
  link_ = link;
  client_ = client;
  seal_ = seal;
  offered_ = reading_ = delivered_ = done_ = 0;
  reads_at_once_ = false;
  reading_bytes_ = opened_bytes_ = 0;
  const TransferTable transfers = TransfersOf(domain->links().path().kind);
  most_reading_bytes_ = transfers.fetched_bytes;
  wipes_ = !transfers.fetches_whole && seal == nullptr;
  active_ = true;
}

bool LargeReceiver::OnOffer(const LargeOffer& offer, ByteSpan tag) {
  if (offer.id != offered_ || outstanding() == kLargeOutstanding) return false;
  if (offer.length == 0 || offer.length > kMaxMessageBytes) return false;
  // Nothing of a provider lies as high, and so the sum stays below 2^64.
  if (offer.offset >= kSealedOffset) return false;
  Incoming& incoming = At(offered_++);
  incoming.offer = offer;
  std::copy(tag.begin(), tag.end(), incoming.tag.begin());
  incoming.offered_ns = patience_.clock != nullptr ? patience_.clock->NowNs() : 0;
  incoming.read = false;
  PostReads();
  return true;
}

void LargeReceiver::Advance() {
  if (has_read() && host_->TakesTurn()) Deliver();
  PostReads();
}

void LargeReceiver::DeliverInTurn() {
  Deliver();
  PostReads();
}

void LargeReceiver::PostReads() {
  PostPossibleReads();
  if (patience_.clock == nullptr) return;
  // The oldest is the peer's to answer.
  if (!active_ || delivered_ == reading_ || At(delivered_).read) {
    if (armed()) patience_.timers->Cancel(this);
    return;
  }
  if (armed() && watched_ == delivered_) return;
  watched_ = delivered_;
  const uint64_t most_ns = TransferTimeNs(patience_.timeout_ns, At(delivered_).offer.length);
  const uint64_t now_ns = patience_.clock->NowNs();
  patience_.timers->Schedule(this, most_ns < kNever - now_ns ? now_ns + most_ns : kNever);
}

void LargeReceiver::OnTimer() {
  const uint64_t bytes = At(delivered_).offer.length;
  Fail(absl::UnavailableError(StrCat("the peer has offered ", bytes,
                                     " bytes and not let them be read within ",
                                     TransferTimeNs(patience_.timeout_ns, bytes) / kNsPerMs,
                                     " ms (LinkOptions::transfer_timeout_ns)")));
}

// Reads that take time go on side by side. Copies only take it from this turn: a piece at a time.
bool LargeReceiver::MayRead(uint64_t bytes) const {
  if (reading_bytes_ == 0) return true;
  const uint64_t most_bytes =
      reads_at_once_ ? std::min<uint64_t>(most_reading_bytes_, domain_->large_piece_bytes())
                     : most_reading_bytes_;
  return reading_bytes_ < most_bytes && bytes <= most_bytes - reading_bytes_;
}

void LargeReceiver::PostPossibleReads() {
  LargePool& pool = domain_->receive_pool();
  while (active_ && reading_ != offered_ && !LargeClaim::linked()) {
    Incoming& incoming = At(reading_);
    if (!MayRead(incoming.offer.length)) return;  // OnRead() comes back
    if (incoming.buffer == nullptr) {
      incoming.buffer = pool.AcquireOrWait(incoming.offer.length, client_, this);
      if (incoming.buffer == nullptr) {
        // Nobody would ever release what this claim waits for.
        if (pool.in_use_bytes() == pool.lent_bytes()) pool.Withdraw(this), OnBuffer(nullptr);
        return;
      }
    }
    if (!PostRead(incoming)) return;
    ++reading_;
    reading_bytes_ += incoming.offer.length;
  }
}

bool LargeReceiver::NextDone(LargeDone* done) const {
  if (done_ == delivered_) return false;
  *done = {done_, 0};
  return true;
}

void LargeReceiver::Stop() {
  WEFT_CHECK(!active_);  // Ours: Cease() comes first
  if (domain_ == nullptr) return;
  if (armed()) patience_.timers->Cancel(this);
  domain_->receive_pool().Withdraw(this);
  for (Incoming& incoming : ring_) ReturnBuffer(incoming);
}

void LargeReceiver::CheckInvariants() const {
  // Ours: invariants, which tests ask for
  WEFT_CHECK(done_ <= delivered_ && delivered_ <= reading_ && reading_ <= offered_ &&
             offered_ <= done_ + kLargeOutstanding);
}

void LargeReceiver::Incoming::OnComplete(const absl::Status& status) {
  receiver->OnRead(*this, status);
}

void LargeReceiver::OnBuffer(LargeBuffer* buffer) {
  if (buffer == nullptr) {
    return Fail(absl::ResourceExhaustedError(
        "no memory for a large message: the system gives none, or the lock limit is too small"));
  }
  At(reading_).buffer = buffer;
  PostReads();
}

bool LargeReceiver::PostRead(Incoming& incoming) {
  const LargeOffer& offer = incoming.offer;
  // What an answer leaves out would be what the buffer had before, perhaps another connection's.
  if (wipes_) std::memset(incoming.buffer->memory.data(), 0, offer.length);
  const Transfer read = {incoming.buffer->local.get(), 0, {offer.key, offer.offset, offer.length}};
  const absl::StatusOr<Posted> posted =
      link_->Post(TransferKind::kRead, absl::MakeConstSpan(&read, 1), &incoming);
  if (posted.ok()) {
    incoming.read = reads_at_once_ = *posted == Posted::kDone;
    if (incoming.read) host_->OnReadDone();
    return true;
  }
  if (absl::IsResourceExhausted(posted.status())) {
    host_->OnReadRefused();
  } else {
    Fail(posted.status());
  }
  return false;
}

void LargeReceiver::Fail(const absl::Status& why) {
  active_ = false;
  host_->OnReadFailed(why);
}

void LargeReceiver::OnRead(Incoming& incoming, const absl::Status& status) {
  if (!active_) return;
  if (!status.ok()) return Fail(status);
  incoming.read = true;
  Advance();
}

// In its place, which no peer has access to: but on iWARP, where what a read fills can be written
// to as long as it is registered. True: it is what was sealed, all of it.
bool LargeReceiver::OpenSome(Incoming& incoming, size_t* most_bytes) {
  const uint64_t length = incoming.offer.length;
  if (opened_bytes_ == 0) {
    if (domain_->links().path().link == LinkKind::kIwarp) incoming.buffer->local.reset();
    seal_->BeginRecord({});
  }
  const size_t bytes = std::min<uint64_t>(*most_bytes, length - opened_bytes_);
  const MutableByteSpan piece = incoming.buffer->memory.subspan(opened_bytes_, bytes);
  seal_->AddToRecord(piece, piece.data());
  opened_bytes_ += bytes;
  *most_bytes -= bytes;
  if (opened_bytes_ != length) return false;
  opened_bytes_ = 0;
  if (seal_->EndRecord(ByteSpan(incoming.tag))) return true;
  Fail(absl::DataLossError("its seal is broken"));
  return false;
}

// A piece: of messages that are not sealed, so many that they are as long together, or one.
void LargeReceiver::Deliver() {
  size_t most_bytes = domain_->large_piece_bytes();
  while (most_bytes > 0 && has_read()) {
    Incoming& incoming = At(delivered_);
    if (seal_ == nullptr) {
      most_bytes -= std::min<uint64_t>(most_bytes, incoming.offer.length);
    } else if (!OpenSome(incoming, &most_bytes)) {
      return;
    }
    ++delivered_;
    delivering_ = &incoming;
    host_->DeliverLarge(incoming.buffer->memory.first(incoming.offer.length), incoming.offered_ns);
    delivering_ = nullptr;
    if (incoming.buffer == nullptr) domain_->receive_pool().ServeClaims();  // it was kept
    ReturnBuffer(incoming);
    reading_bytes_ -= incoming.offer.length;
    host_->OnLargeDelivered();
  }
}

std::shared_ptr<const void> LargeReceiver::KeepDelivered() {
  if (delivering_ == nullptr || delivering_->buffer == nullptr) return nullptr;
  std::shared_ptr<const void> kept = domain_->receive_pool().Lend(delivering_->buffer);
  if (kept != nullptr) delivering_->buffer = nullptr;
  return kept;
}

void LargeReceiver::ReturnBuffer(Incoming& incoming) {
  if (incoming.buffer == nullptr) return;
  domain_->receive_pool().Release(std::exchange(incoming.buffer, nullptr));
}

}  // namespace weft
