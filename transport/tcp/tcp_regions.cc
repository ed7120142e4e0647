#include "transport/tcp/tcp_regions.h"

#include "core/check.h"
#include "core/random.h"
#include "core/strings.h"

namespace weft {

absl::StatusOr<uint64_t> TcpRegions::Add(MutableByteSpan memory, Access access) {
  // Ours: TcpDomain::Register() has refused others
  WEFT_DCHECK(!memory.empty() && access != Access::kLocalOnly);
  if (free_.empty()) {
    if (entries_.size() == kMaxRegions) {
      return absl::ResourceExhaustedError(
          StrCat("tcp: ", kMaxRegions,
                 " regions that peers may reach are registered already on this engine"));
    }
    free_.push_back(static_cast<uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  const uint64_t key = (SecureRandom64() & ~uint64_t{kMaxRegions - 1}) | place;
  entries_[place] = {key, memory, access != Access::kRemoteWrite, access != Access::kRemoteRead};
  return key;
}

void TcpRegions::Remove(uint64_t key) {
  Entry& entry = entries_[key % kMaxRegions];
  // Ours: a region removes its own key, once
  WEFT_CHECK(entry.key == key && !entry.memory.empty());
  entry = {};
  free_.push_back(static_cast<uint32_t>(key % kMaxRegions));
}

}  // namespace weft
