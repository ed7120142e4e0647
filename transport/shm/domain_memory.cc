#include "transport/shm/domain_memory.h"

#include <algorithm>
#include <utility>

#include "core/log.h"
#include "core/status.h"

namespace weft {
namespace {

constexpr uint64_t kMagic = 0x314d4f4454464557;  // "WEFTDOM1"

}  // namespace

absl::StatusOr<std::unique_ptr<DomainMemory>> DomainMemory::Create() {
  WEFT_ASSIGN_OR_RETURN(SealedMemory memory,
                        SealedMemory::Create("weft-domain", sizeof(SharedDomainMemory)));
  return std::unique_ptr<DomainMemory>(new DomainMemory(std::move(memory)));
}

DomainMemory::DomainMemory(SealedMemory memory)
    : memory_(std::move(memory)),
      ready_flags_(&shared()->ready_flags),
      regions_(shared()->regions) {}

int DomainMemory::Show() {
  shared()->magic = kMagic;
  regions_.WriteHeader();
  return memory_.descriptor();
}

PeerDomain::PeerDomain(const PeerDomainKey& key, SealedMemory memory, const CopyWays& ways)
    : key_(key), memory_(std::move(memory)) {
  absl::StatusOr<std::unique_ptr<PeerRegions>> regions =
      PeerRegions::Open(shared()->regions, key.process_id, ways);
  regions_status_ = regions.status();
  if (regions.ok()) {
    regions_ = *std::move(regions);
  } else {
    WEFT_LOG(kInfo, "shm: no one-sided operations: ", ToStd(regions_status_.message()));
  }
}

absl::StatusOr<std::shared_ptr<PeerDomain>> PeerDomains::Open(int descriptor, int32_t process_id,
                                                              uint64_t process_start) {
  WEFT_ASSIGN_OR_RETURN(const FileIdentity file, IdentityOf(descriptor));
  const PeerDomainKey key{file, process_id, process_start};
  std::erase_if(known_, [](const std::weak_ptr<PeerDomain>& known) { return known.expired(); });
  for (const std::weak_ptr<PeerDomain>& known : known_) {
    std::shared_ptr<PeerDomain> peer = known.lock();
    if (peer->key() == key) return peer;
  }
  WEFT_ASSIGN_OR_RETURN(SealedMemory memory,
                        SealedMemory::Open(descriptor, sizeof(SharedDomainMemory)));
  if (reinterpret_cast<const SharedDomainMemory*>(memory.data())->magic != kMagic) {
    return absl::InvalidArgumentError("a peer's memory for its domain has another layout");
  }
  auto peer = std::make_shared<PeerDomain>(key, std::move(memory), ways_);
  known_.push_back(peer);
  return peer;
}

}  // namespace weft
