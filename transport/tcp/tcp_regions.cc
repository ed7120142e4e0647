#include "transport/tcp/tcp_regions.h"

#include <typeinfo>

#include "core/check.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {

class TcpRegions::TcpRegion final : public Region {
 public:
  TcpRegion(TcpRegions* regions, MutableByteSpan memory, uint64_t key)
      : Region(memory, RemoteSpan{key, 0, memory.size()}), regions_(regions) {
    ++regions_->stats_->registrations;
    ++regions_->stats_->registrations_open;
  }
  ~TcpRegion() override {
    --regions_->stats_->registrations_open;
    if (remote().key != 0) regions_->Remove(remote().key);
  }

  const TcpRegions* regions() const { return regions_; }

 private:
  TcpRegions* const regions_;
};

absl::StatusOr<std::unique_ptr<Region>> TcpRegions::Register(MutableByteSpan memory,
                                                             Access access) {
  WEFT_DCHECK(!memory.empty());  // Ours: TcpDomain::Register() has refused others
  uint64_t key = 0;
  if (access != Access::kLocalOnly) {
    WEFT_ASSIGN_OR_RETURN(key, Add(memory, access));
  }
  return std::unique_ptr<Region>(new TcpRegion(this, memory, key));
}

bool TcpRegions::Has(const Region& region) const {
  return typeid(region) == typeid(TcpRegion) &&
         static_cast<const TcpRegion&>(region).regions() == this;
}

absl::StatusOr<uint64_t> TcpRegions::Add(MutableByteSpan memory, Access access) {
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
  decltype(users_) now;
  now.SpliceBack(users_);
  while (TcpRegionUser* const user = now.PopFront()) user->OnRegionGone(key);
}

}  // namespace weft
