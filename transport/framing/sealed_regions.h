// Memory of a sealed connection that peers reach through its owner's engine alone
// (sealed_transfers.h): the provider knows nothing of it.
//
// Threads: one engine's. Lifetime: a region leaves when it is destroyed.
// Errors: what a peer names wrongly is nullptr; it does not learn what was wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/bytes.h"
#include "core/intrusive_list.h"
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
  void Add(SealedRegion* region) { BucketOf(region->remote().key).PushBack(region); }
  // nullptr: there is no such region, range or right.
  std::byte* Find(const RemoteSpan& span, bool write) {
    for (SealedRegion& region : BucketOf(span.key)) {
      const RemoteSpan all = region.remote();
      if (all.key != span.key) continue;
      if (!region.Allows(write) || span.offset < all.offset) return nullptr;
      const uint64_t from = span.offset - all.offset;
      if (from > all.length || span.length > all.length - from) return nullptr;
      return region.memory().data() + from;
    }
    return nullptr;
  }

 private:
  static constexpr int kBucketBits = 6;  // as AtomicRegions
  using Bucket = IntrusiveList<SealedRegion, SealedRegionTag>;

  Bucket& BucketOf(uint64_t key) { return buckets_[key >> (64 - kBucketBits)]; }  // random numbers

  std::array<Bucket, size_t{1} << kBucketBits> buckets_;
};

}  // namespace weft
