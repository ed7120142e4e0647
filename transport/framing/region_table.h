// Regions of one kind, found by the key that names them, and what a peer means in one.
//
// Threads: one engine's. Lifetime: a region leaves when it is destroyed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/intrusive_list.h"
#include "transport/region.h"

namespace weft {

// `length` bytes at `offset`, as RemoteSpan::offset counts. nullptr: they do not lie in `region`.
inline std::byte* MemoryAt(const Region& region, uint64_t offset, uint64_t length) {
  const RemoteSpan all = region.remote();
  if (offset < all.offset) return nullptr;
  const uint64_t from = offset - all.offset;
  if (from > all.length || length > all.length - from) return nullptr;
  return region.memory().data() + from;
}

// `R` is a Region, and in a list by `Tag`.
template <class R, class Tag>
class RegionTable {
 public:
  void Add(R* region) { BucketOf(region->remote().key).PushBack(region); }

  // Nothing to do if it is nowhere.
  static void Remove(R* region) { Bucket::Remove(region); }

  // nullptr: there is none with this key.
  R* Find(uint64_t key) {
    for (R& region : BucketOf(key)) {
      if (region.remote().key == key) return &region;
    }
    return nullptr;
  }

 private:
  // Programs share some regions, seldom hundreds: mostly one look.
  static constexpr int kBucketBits = 6;
  using Bucket = IntrusiveList<R, Tag>;

  // Some providers count their keys, others draw them: the product's high bits spread both.
  Bucket& BucketOf(uint64_t key) {
    return buckets_[(key * 0x9e3779b97f4a7c15) >> (64 - kBucketBits)];
  }

  std::array<Bucket, size_t{1} << kBucketBits> buckets_;
};

}  // namespace weft
