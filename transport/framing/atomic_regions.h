// The regions whose memory peers may change by atomics, found by the key that names them.
//
// Threads: one engine's. Lifetime: a region leaves when it is destroyed.
// Errors: what a peer names wrongly is nullptr; it does not learn what was wrong.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/intrusive_list.h"
#include "transport/region.h"

namespace weft {

class AtomicRegions {
 public:
  // REQUIRES: registered with kRemoteReadWrite.
  void Add(Region* region) { BucketOf(region->remote().key).PushBack(region); }

  // Nothing to do if it is nowhere.
  static void Remove(Region* region) { Bucket::Remove(region); }

  // The 8 bytes at `offset`, as RemoteSpan::offset counts, of the region with this key. nullptr:
  // there is no such region, or they do not lie in it, or not at a multiple of 8.
  uint64_t* Find(uint64_t key, uint64_t offset) {
    for (Region& region : BucketOf(key)) {
      if (region.remote().key == key) return WordOf(region, offset);
    }
    return nullptr;
  }

 private:
  // Programs share some regions, seldom hundreds: mostly one look.
  static constexpr int kBucketBits = 6;
  using Bucket = IntrusiveList<Region, AtomicRegionTag>;

  // Some providers count their keys, others draw them: the product's high bits spread both.
  Bucket& BucketOf(uint64_t key) {
    return buckets_[(key * 0x9e3779b97f4a7c15) >> (64 - kBucketBits)];
  }

  static uint64_t* WordOf(const Region& region, uint64_t offset) {
    const RemoteSpan all = region.remote();
    if (offset < all.offset || all.length < sizeof(uint64_t)) return nullptr;
    const uint64_t from = offset - all.offset;
    if (from > all.length - sizeof(uint64_t)) return nullptr;
    std::byte* const at = region.memory().data() + from;
    if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0) return nullptr;
    return reinterpret_cast<uint64_t*>(at);
  }

  std::array<Bucket, size_t{1} << kBucketBits> buckets_;
};

}  // namespace weft
