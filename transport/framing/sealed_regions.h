// Memory of a sealed connection that peers reach through its owner's engine alone
// (sealed_transfers.h): the provider knows nothing of it.
//
// Threads: one engine's. Lifetime: a region leaves when it is destroyed.
// Errors: what a peer names wrongly is nullptr; it does not learn what was wrong.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/intrusive_list.h"
#include "transport/framing/region_table.h"
#include "transport/region.h"

namespace weft {

// Offsets in regions that only engines touch count from here: no address of a process, and no
// offset in a provider's region, is as large.
inline constexpr uint64_t kSealedOffset = uint64_t{1} << 63;
inline bool IsSealedSpan(const RemoteSpan& span) { return span.offset >= kSealedOffset; }

struct SealedRegionTag;

// Memory that peers reach by this alone. Destroying it is all that it takes to reclaim it.
class SealedRegion final : public Region, public ListNode<SealedRegionTag> {
 public:
  // `key`: random.
  SealedRegion(MutableByteSpan memory, Access access, uint64_t key)
      : Region(memory, {key, kSealedOffset, memory.size()}), access_(access) {}

  bool Allows(bool write) const {
    return access_ == Access::kRemoteReadWrite ||
           access_ == (write ? Access::kRemoteWrite : Access::kRemoteRead);
  }

 private:
  const Access access_;
};

// Those of one domain, found by the key that names them.
class SealedRegions {
 public:
  void Add(SealedRegion* region) { table_.Add(region); }
  // nullptr: there is no such region, range or right.
  std::byte* Find(const RemoteSpan& span, bool write) {
    const SealedRegion* const region = table_.Find(span.key);
    if (region == nullptr || !region->Allows(write)) return nullptr;
    return MemoryAt(*region, span.offset, span.length);
  }

 private:
  RegionTable<SealedRegion, SealedRegionTag> table_;
};

}  // namespace weft
