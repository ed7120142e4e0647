#include "transport/framing/large_sender.h"

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {

LargeSender::LargeSender(Host* host, const LargePatience& patience)
    : host_(host), patience_(patience) {
  for (Offered& offered : ring_) offered.sender = this;
}

void LargeSender::Start(FramingDomain* domain, Seal* seal) {
  WEFT_CHECK(reserved_ == nullptr && outstanding() == 0);  // Ours: Stop() has freed them
  domain_ = domain;
  seal_ = seal;
  offered_ = acknowledged_ = sealed_ = 0;
}

std::byte* LargeSender::Reserve(size_t bytes) {
  WEFT_DCHECK(reserved_ == nullptr);  // Ours: one reservation at a time (Reserve of the connection)
  if (full()) return nullptr;
  LargePool& pool = domain_->send_pool();
  if (held_bytes_ > 0 && held_bytes_ + bytes > pool.limit_bytes() / 4) return nullptr;
  reserved_ = pool.Acquire(bytes);
  return reserved_ == nullptr ? nullptr : reserved_->memory.data();
}

void LargeSender::Abandon() { domain_->send_pool().Release(std::exchange(reserved_, nullptr)); }

absl::StatusOr<LargeOffer> LargeSender::Commit(size_t bytes) {
  Offered& offered = ring_[offered_ % kLargeOutstanding];
  WEFT_ASSIGN_OR_RETURN(offered.region, Register(*reserved_, bytes));
  const RemoteSpan remote = offered.region->remote();
  TakeReserved();
  return LargeOffer{offered_ - 1, remote.key, remote.offset, remote.length};
}

absl::StatusOr<std::unique_ptr<Region>> LargeSender::Register(const LargeBuffer& buffer,
                                                              size_t bytes) {
  auto region = domain_->links().Register(buffer.memory.first(bytes), Access::kRemoteRead);
  if (!region.ok()) return Annotate(region.status(), "register a large message");
  return region;
}

void LargeSender::TakeReserved() {
  Offered& offered = ring_[offered_++ % kLargeOutstanding];
  offered.buffer = std::exchange(reserved_, nullptr);
  held_bytes_ += offered.buffer->memory.size();
  if (outstanding() == 1) Watch();
}

void LargeSender::CommitToSeal(size_t bytes, std::byte* offer) {
  Offered& offered = ring_[offered_ % kLargeOutstanding];
  offered.bytes = bytes;
  offered.offer = offer;
  TakeReserved();
}

void LargeSender::SealOffered() {
  for (; sealed_ != offered_; ++sealed_) {
    Offered& offered = ring_[sealed_ % kLargeOutstanding];
    const MutableByteSpan message = offered.buffer->memory.first(offered.bytes);
    seal_->Encrypt({}, message, message.data(), offered.offer + LargeOffer::kBytes);
    auto region = Register(*offered.buffer, offered.bytes);
    if (!region.ok()) return FailOffered(region.status());
    offered.region = *std::move(region);
    const RemoteSpan remote = offered.region->remote();
    EncodeLargeOffer(offered.offer, {sealed_, remote.key, remote.offset, remote.length});
  }
}

// What stands in the slot of this one and of those behind it is not this connection's.
void LargeSender::FailOffered(const absl::Status& why) {
  for (; sealed_ != offered_; ++sealed_) {
    std::memset(ring_[sealed_ % kLargeOutstanding].offer, 0, LargeOffer::kSealedBytes);
  }
  host_->OnOfferFailed(why);
}

void LargeSender::Watch() {
  if (patience_.clock == nullptr) return;
  if (outstanding() == 0) return patience_.timers->Cancel(this);
  const uint64_t most_ns = LargePatience::kTimesForOffers * patience_.timeout_ns;
  patience_.timers->Schedule(this, most_ns == 0 ? kNever : patience_.clock->NowNs() + most_ns);
}

void LargeSender::OnTimer() {
  host_->OnOfferOverdue(absl::UnavailableError(StrCat(
      "the peer has not taken a large message for ", LargePatience::kTimesForOffers, " times ",
      patience_.timeout_ns / kNsPerMs, " ms (LinkOptions::transfer_timeout_ns)")));
}

bool LargeSender::OnDone(const LargeDone& done) {
  if (outstanding() == 0 || done.id != acknowledged_ || done.status != 0) return false;
  if (seal_ != nullptr && acknowledged_ == sealed_) return false;  // it has not heard of it
  Offered& offered = ring_[acknowledged_++ % kLargeOutstanding];
  Watch();
  if (host_->ReclaimLarge(std::move(offered.region), &offered)) Free(offered);
  return true;
}

// If Stop() has not come first.
void LargeSender::OnReclaimed(Offered& offered) {
  if (offered.buffer == nullptr) return;
  Free(offered);
  host_->OnLargeReclaimed();
}

void LargeSender::Stop() {
  if (reserved_ != nullptr) Abandon();
  acknowledged_ = offered_;
  if (armed()) patience_.timers->Cancel(this);
  for (Offered& offered : ring_) {
    if (offered.buffer != nullptr) Free(offered);
  }
}

void LargeSender::Free(Offered& offered) {
  offered.region.reset();
  held_bytes_ -= offered.buffer->memory.size();
  domain_->send_pool().Release(std::exchange(offered.buffer, nullptr));
}

}  // namespace weft
