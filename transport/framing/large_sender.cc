#include "transport/framing/large_sender.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"

namespace weft {

void LargeSender::Start(FramingDomain* domain) {
  WEFT_CHECK(reserved_ == nullptr && outstanding() == 0);
  domain_ = domain;
  offered_ = acknowledged_ = 0;
}

std::byte* LargeSender::Reserve(size_t bytes) {
  WEFT_DCHECK(reserved_ == nullptr);
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
  ring_[offered_ % kLargeOutstanding] = {std::exchange(reserved_, nullptr), *std::move(region)};
  return LargeOffer{offered_++, remote.key, remote.offset, remote.length};
}

bool LargeSender::OnDone(const LargeDone& done) {
  if (outstanding() == 0 || done.id != acknowledged_ || done.status != 0) return false;
  Free(ring_[acknowledged_++ % kLargeOutstanding]);
  return true;
}

void LargeSender::Stop() {
  if (reserved_ != nullptr) Abandon();
  while (outstanding() > 0) Free(ring_[acknowledged_++ % kLargeOutstanding]);
}

void LargeSender::Free(Offered& offered) {
  offered.region.reset();
  domain_->send_pool().Release(std::exchange(offered.buffer, nullptr));
}

}  // namespace weft
