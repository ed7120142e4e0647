// The regions whose memory peers may change by atomics, found by the key that names them.
//
// Threads: one engine's. Lifetime: a region leaves when it is destroyed.
// Errors: what a peer names wrongly is nullptr; it does not learn what was wrong.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/framing/region_table.h"
#include "transport/region.h"

namespace weft {

class AtomicRegions {
 public:
  // REQUIRES: registered with kRemoteReadWrite.
  void Add(Region* region) { table_.Add(region); }

  // Nothing to do if it is nowhere.
  static void Remove(Region* region) { Table::Remove(region); }

  // The 8 bytes at `offset`, as RemoteSpan::offset counts, of the region with this key. nullptr:
  // there is no such region, or they do not lie in it, or not at a multiple of 8.
  uint64_t* Find(uint64_t key, uint64_t offset) {
    const Region* const region = table_.Find(key);
    std::byte* const at = region == nullptr ? nullptr : MemoryAt(*region, offset, sizeof(uint64_t));
    if (reinterpret_cast<uintptr_t>(at) % sizeof(uint64_t) != 0) return nullptr;
    return reinterpret_cast<uint64_t*>(at);
  }

 private:
  using Table = RegionTable<Region, AtomicRegionTag>;

  Table table_;
};

}  // namespace weft
