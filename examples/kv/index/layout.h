// How the index lies in memory: what a client finds that reads it without asking the server.
//
// Two exported regions. The *table* is an array of buckets (index.proto); a key belongs to one of
// them, by its hash. The *heap* holds the records, each in one extent of it: head, key, block
// (record.h). A Get is two remote reads: the bucket, then the extent that a slot of it names. It is
// one where the bucket says that there is no such record, and where the reader remembers the slot.
//
// Both verify themselves, because nobody stops the server from changing them while they are read:
//   a bucket   is a record with sequence word and checksum (rpc/layout/record.h).
//   an extent  has the version and the CRC32C that the slot says: a late reader, whose extent has
//              been used again, sees that it is not the one the slot meant.
//
// The server changes a record in this order: it writes the new extent, ends the old one (its
// version becomes 0, which no slot says), changes the bucket, answers. So an extent that has the
// slot's version was the record at the moment when its version was read: this is where a Get that
// found it takes effect (it linearizes there), however old the slot is. A Get that found none takes
// effect where the bucket was read, which stood so, whole, at one moment during the read.
//
// The index may lack records (too large, or no room): then their bucket's kAsk flag is set, and
// what is not found there has to be asked for by a call.
//
// Threads:  plain data.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>

#include "examples/kv/index/index.weft.h"

namespace kv::index {

// Slots of a bucket. With seven, of a table filled to one half 27 in 1,000 buckets are over-full;
// with three it would be 66.
inline constexpr uint32_t kSlots = 7;

// BucketLayout::flags.
inline constexpr uint64_t kAsk = 1;  // a record that belongs here may be missing

inline constexpr size_t kBucketBytes = sizeof(BucketLayout);
static_assert(kBucketBytes == 256);
static_assert(std::tuple_size_v<decltype(BucketLayout::slots)> == kSlots);

// Before each extent's key and record.
struct ExtentHead {
  uint64_t version;  // 0: ended
  uint32_t key_bytes;
  uint32_t record_bytes;
};
static_assert(sizeof(ExtentHead) == 16);

// Extents begin at multiples of a cache line.
inline constexpr uint32_t kExtentUnitBytes = 64;

// The largest extent; larger records are asked for. Bounds what a reader keeps for each read.
inline constexpr uint32_t kMaxExtentBytes = 64 << 10;

}  // namespace kv::index
