#include "transport/framing/large_sender.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {

LargeSender::LargeSender(Host* host, const LargePatience& patience)
    : host_(host), patience_(patience) {
  for (Offered& offered : ring_) offered.sender = this;
}

void LargeSender::Start(FramingDomain* domain, uint64_t client, Seal* seal) {
  WEFT_CHECK(reserved_ == nullptr && outstanding() == 0);  // Ours: Stop() has freed them
  domain_ = domain;
  client_ = client;
  seal_ = seal;
  committed_ = ready_ = offered_ = answered_ = 0;
}

std::byte* LargeSender::Reserve(size_t bytes) {
  WEFT_DCHECK(reserved_ == nullptr);  // Ours: one reservation at a time (Reserve of the connection)
  if (full()) return nullptr;
  LargePool& pool = domain_->send_pool();
  if (held_bytes_ > 0 && held_bytes_ + bytes > pool.limit_bytes() / 4) return nullptr;
  reserved_ = pool.Acquire(bytes, client_);
  return reserved_ == nullptr ? nullptr : reserved_->memory.data();
}

void LargeSender::Abandon() { domain_->send_pool().Release(std::exchange(reserved_, nullptr)); }

absl::StatusOr<LargeOffer> LargeSender::Commit(size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(auto region, Register(*reserved_, bytes));
  const RemoteSpan remote = region->remote();
  TakeReserved().region = std::move(region);
  ready_ = offered_ = committed_;
  if (outstanding() == 1) Watch();
  return LargeOffer{offered_ - 1, remote.key, remote.offset, remote.length};
}

absl::StatusOr<std::unique_ptr<Region>> LargeSender::Register(const LargeBuffer& buffer,
                                                              size_t bytes) {
  auto region = domain_->links().Register(buffer.memory.first(bytes), Access::kRemoteRead);
  if (!region.ok()) return Annotate(region.status(), "register a large message");
  return region;
}

LargeSender::Offered& LargeSender::TakeReserved() {
  Offered& offered = ring_[committed_++ % kLargeOutstanding];
  offered.buffer = std::exchange(reserved_, nullptr);
  held_bytes_ += offered.buffer->memory.size();
  return offered;
}

void LargeSender::CommitToSeal(size_t bytes) {
  Offered& offered = TakeReserved();
  offered.bytes = bytes;
  offered.sealed_bytes = 0;
}

void LargeSender::SealNext(size_t most_bytes) {
  while (has_unsealed() && most_bytes > 0) {
    Offered& offered = ring_[ready_ % kLargeOutstanding];
    SealSome(offered, &most_bytes);
    if (offered.sealed_bytes != offered.bytes) return;
    seal_->EndRecord(offered.tag.data());
    auto region = Register(*offered.buffer, offered.bytes);
    if (!region.ok()) return host_->OnOfferFailed(region.status());
    offered.region = *std::move(region);
    ++ready_;
    if (ready_ == answered_ + 1) Watch();
  }
}

void LargeSender::SealSome(Offered& offered, size_t* most_bytes) {
  if (offered.sealed_bytes == 0) seal_->BeginRecord({});
  const size_t bytes = std::min(*most_bytes, offered.bytes - offered.sealed_bytes);
  const MutableByteSpan piece = offered.buffer->memory.subspan(offered.sealed_bytes, bytes);
  seal_->AddToRecord(piece, piece.data());
  offered.sealed_bytes += bytes;
  *most_bytes -= bytes;
}

bool LargeSender::NextOffer(LargeOffer* offer, ByteSpan* tag) const {
  if (!has_offer()) return false;
  const Offered& next = ring_[offered_ % kLargeOutstanding];
  const RemoteSpan remote = next.region->remote();
  *offer = {offered_, remote.key, remote.offset, remote.length};
  *tag = next.tag;
  return true;
}

void LargeSender::Watch() {
  if (patience_.clock == nullptr) return;
  if (ready_ == answered_) return patience_.timers->Cancel(this);
  const uint64_t most_ns = LargePatience::kTimesForOffers * patience_.timeout_ns;
  patience_.timers->Schedule(this, most_ns == 0 ? kNever : patience_.clock->NowNs() + most_ns);
}

void LargeSender::OnTimer() {
  host_->OnOfferOverdue(absl::UnavailableError(StrCat(
      "the peer has not taken a large message for ", LargePatience::kTimesForOffers, " times ",
      patience_.timeout_ns / kNsPerMs, " ms (LinkOptions::transfer_timeout_ns)")));
}

bool LargeSender::OnDone(const LargeDone& done) {
  if (answered_ == offered_ || done.id != answered_ || done.status != 0) return false;
  Offered& offered = ring_[answered_++ % kLargeOutstanding];
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
  ready_ = offered_ = answered_ = committed_;
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
