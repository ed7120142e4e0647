#include "transport/framing/large_receiver.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/crc32c.h"
#include "transport/transfer_table.h"

namespace weft {

LargeReceiver::LargeReceiver(Host* host) : host_(host) {
  for (Incoming& incoming : ring_) incoming.receiver = this;
}

void LargeReceiver::Start(FramingDomain* domain, Link* link, bool digests) {
  WEFT_CHECK(!active_);  // Ours: Cease() comes first
  domain_ = domain;
  link_ = link;
  offered_ = reading_ = delivered_ = done_ = 0;
  reading_bytes_ = 0;
  const TransferTable transfers = TransfersOf(domain->links().path().kind);
  most_reading_bytes_ = transfers.fetched_bytes;
  digests_ = digests;
  wipes_ = !transfers.fetches_whole && !digests;
  active_ = true;
}

bool LargeReceiver::OnOffer(const LargeOffer& offer) {
  if (offer.id != offered_ || outstanding() == kLargeOutstanding) return false;
  if (offer.length == 0 || offer.length > kMaxMessageBytes) return false;
  if (offer.offset + offer.length < offer.offset) return false;
  if (offer.digest != 0 && !digests_) return false;
  Incoming& incoming = At(offered_++);
  incoming.offer = offer;
  incoming.read = false;
  PostReads();
  return true;
}

void LargeReceiver::Advance() {
  Deliver();
  PostReads();
}

void LargeReceiver::PostReads() {
  LargePool& pool = domain_->receive_pool();
  while (active_ && reading_ != offered_ && !linked()) {
    Incoming& incoming = At(reading_);
    if (!MayRead(incoming.offer.length)) return;  // OnRead() comes back
    if (incoming.buffer == nullptr) {
      incoming.buffer = pool.AcquireOrWait(incoming.offer.length, this);
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

void LargeReceiver::Cease() { active_ = false; }

void LargeReceiver::Stop() {
  WEFT_CHECK(!active_);  // Ours: Cease() comes first
  if (domain_ == nullptr) return;
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
    active_ = false;
    host_->OnReadFailed(absl::ResourceExhaustedError(
        "no memory for a large message: the system gives none, or the lock limit is too small"));
    return;
  }
  At(reading_).buffer = buffer;
  PostReads();
}

bool LargeReceiver::PostRead(Incoming& incoming) {
  const LargeOffer& offer = incoming.offer;
  // What is not written over may be another connection's.
  if (wipes_) std::memset(incoming.buffer->memory.data(), 0, offer.length);
  const Transfer read = {incoming.buffer->local.get(), 0, {offer.key, offer.offset, offer.length}};
  const absl::StatusOr<Posted> posted =
      link_->Post(TransferKind::kRead, absl::MakeConstSpan(&read, 1), &incoming);
  if (posted.ok()) {
    incoming.read = *posted == Posted::kDone;
    if (incoming.read) host_->OnReadDone();
    return true;
  }
  if (absl::IsResourceExhausted(posted.status())) {
    host_->OnReadRefused();
  } else {
    active_ = false;
    host_->OnReadFailed(posted.status());
  }
  return false;
}

void LargeReceiver::OnRead(Incoming& incoming, const absl::Status& status) {
  if (!active_) return;
  if (!status.ok()) {
    active_ = false;
    host_->OnReadFailed(status);
    return;
  }
  incoming.read = true;
  Advance();
}

void LargeReceiver::Deliver() {
  while (active_ && delivered_ != reading_ && At(delivered_).read) {
    if (!IsWhole(At(delivered_))) {
      active_ = false;
      host_->OnReadFailed(
          absl::DataLossError("its bytes have not the digest that the peer has offered: the answer "
                              "was shorter than asked for, or is not that message"));
      return;
    }
    Incoming& incoming = At(delivered_++);
    delivering_ = &incoming;
    host_->DeliverLarge(incoming.buffer->memory.first(incoming.offer.length));
    delivering_ = nullptr;
    ReturnBuffer(incoming);
    reading_bytes_ -= incoming.offer.length;
    host_->OnLargeDelivered();
  }
}

// On some paths a read has succeeded, whatever the peer has answered. What it has left out is what
// the buffer had before, perhaps a message of another connection.
bool LargeReceiver::IsWhole(const Incoming& incoming) const {
  const LargeOffer& offer = incoming.offer;
  return !digests_ || Crc32c(incoming.buffer->memory.first(offer.length)) == offer.digest;
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
