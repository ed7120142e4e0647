// The server's side of the index (layout.h): keeps it as the store is, for clients to read.
//
// The store stays the truth; the index shows as much of it as its memory holds. After each change
// of the store tell the index, in the same turn and before the answer leaves: whoever has the
// answer then finds the index changed.
//
// Threads:     one at a time, the server's engine's. Readers come from elsewhere at any time.
// Lifetime:    the memory outlives the index. Readers get its handles after construction; once the
//              index is gone, what they find does not change any more.
// Invariants:  a record of the store is in its bucket, or its bucket says kAsk. At most what the
//              memory holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/bytes.h"
#include "examples/kv/index/extent_heap.h"
#include "examples/kv/index/layout.h"
#include "examples/kv/record.h"

namespace kv::index {

class Index {
 public:
  // REQUIRES: `table` is a number of whole buckets, of zeros; both are aligned to 64 bytes.
  Index(weft::MutableByteSpan table, weft::MutableByteSpan heap, uint64_t hash_seed);
  Index(const Index&) = delete;
  Index& operator=(const Index&) = delete;

  // The store has this record now. `existed`: it had one with this key before.
  void Put(std::string_view key, const Record& record, bool existed);
  // The store has no record with this key any more; it had one.
  void Remove(std::string_view key);

  uint32_t buckets() const { return static_cast<uint32_t>(table_.size() / kBucketBytes); }
  uint64_t hash_seed() const { return hash_seed_; }
  uint64_t records() const { return records_; }  // in the index
  uint64_t missing() const { return missing_total_; }
  uint64_t heap_used_bytes() const { return extents_.used_bytes(); }

  // Aborts unless each bucket verifies, each slot's extent too, and the counts are right. Linear.
  void CheckInvariants() const;

 private:
  struct Place {
    uint32_t bucket;
    int slot;  // -1: it is not there
    uint64_t hash;
  };

  BucketLayout& BucketAt(uint32_t number) const;
  weft::MutableByteSpan ExtentAt(const SlotLayout& slot) const;
  Place Find(std::string_view key) const;
  int FreeSlot(uint32_t bucket) const;
  std::optional<SlotLayout> WriteExtent(std::string_view key, const Record& record, uint64_t hash);
  void EndExtent(const SlotLayout& slot);
  void SetSlot(uint32_t number, int slot, const SlotLayout& to);
  void AddMissing(uint32_t bucket, int records);

  const weft::MutableByteSpan table_;
  const weft::MutableByteSpan heap_;
  const uint64_t hash_seed_;
  ExtentHeap extents_;
  std::vector<uint32_t> missing_;  // [bucket]: records that belong there and are not
  uint64_t missing_total_ = 0;
  uint64_t records_ = 0;
  uint64_t last_version_ = 0;
};

}  // namespace kv::index
