// The memory of one domain that peers may read and write, found by key.
//
// A key is 48 random bits and the place in the table: it is found without a search, and a peer that
// guesses needs some 2^47 tries for each region. A place that is used again has a new key.
//
// Threads: the engine's. Errors: RESOURCE_EXHAUSTED for more than kMaxRegions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/region.h"

namespace weft {

class TcpRegions {
 public:
  static constexpr size_t kMaxRegions = size_t{1} << 16;  // the places that a key can name

  // Its key, from now on. `access` is not kLocalOnly.
  absl::StatusOr<uint64_t> Add(MutableByteSpan memory, Access access);
  // REQUIRES: it was added, and not removed.
  void Remove(uint64_t key);

  // The memory that a peer means; empty: it is not granted.
  MutableByteSpan Find(const RemoteSpan& remote, bool write) const {
    const size_t place = remote.key % kMaxRegions;
    if (place >= entries_.size()) return {};
    const Entry& entry = entries_[place];
    const size_t bytes = entry.memory.size();
    if (entry.key != remote.key || !(write ? entry.writable : entry.readable) ||
        remote.length == 0 || remote.offset > bytes || remote.length > bytes - remote.offset) {
      return {};
    }
    return entry.memory.subspan(remote.offset, remote.length);
  }

 private:
  struct Entry {
    uint64_t key = 0;
    MutableByteSpan memory;  // empty: the place is free
    bool readable = false;
    bool writable = false;
  };

  std::vector<Entry> entries_;
  std::vector<uint32_t> free_;  // places, last in, first out
};

}  // namespace weft
