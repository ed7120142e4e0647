#include "transport/framing/large_sender.h"

#include <utility>

#include "core/check.h"
#include "core/crc32c.h"
#include "core/status.h"

namespace weft {

LargeSender::LargeSender(Host* host) : host_(host) {
  for (Offered& offered : ring_) offered.sender = this;
}

void LargeSender::Start(FramingDomain* domain, bool digests) {
  WEFT_CHECK(reserved_ == nullptr && outstanding() == 0);  // Ours: Stop() has freed them
  domain_ = domain;
  digests_ = digests;
  offered_ = acknowledged_ = 0;
}

std::byte* LargeSender::Reserve(size_t bytes) {
  WEFT_DCHECK(reserved_ == nullptr);  // Ours: one reservation at a time (Reserve of the connection)
  if (full()) return nullptr;
  reserved_ = domain_->send_pool().Acquire(bytes);
  return reserved_ == nullptr ? nullptr : reserved_->memory.data();
}

void LargeSender::Abandon() { domain_->send_pool().Release(std::exchange(reserved_, nullptr)); }

absl::StatusOr<LargeOffer> LargeSender::Commit(size_t bytes) {
  auto region = domain_->links().Register(reserved_->memory.first(bytes), Access::kRemoteRead);
  if (!region.ok()) {
    Abandon();
    return Annotate(region.status(), "register a large message");
  }
  const RemoteSpan remote = (*region)->remote();
  const uint32_t digest = digests_ ? Crc32c(reserved_->memory.first(bytes)) : 0;
  Offered& offered = ring_[offered_ % kLargeOutstanding];
  offered.buffer = std::exchange(reserved_, nullptr);
  offered.region = *std::move(region);
  return LargeOffer{offered_++, remote.key, remote.offset, static_cast<uint32_t>(remote.length),
                    digest};
}

bool LargeSender::OnDone(const LargeDone& done) {
  if (outstanding() == 0 || done.id != acknowledged_ || done.status != 0) return false;
  Offered& offered = ring_[acknowledged_++ % kLargeOutstanding];
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
  for (Offered& offered : ring_) {
    if (offered.buffer != nullptr) Free(offered);
  }
}

void LargeSender::Free(Offered& offered) {
  offered.region.reset();
  domain_->send_pool().Release(std::exchange(offered.buffer, nullptr));
}

}  // namespace weft
