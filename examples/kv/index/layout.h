// How the index lies in memory: what a client finds that reads it without asking the server.
//
// Two exported regions. The *table* is an array of buckets; a key belongs to one of them, by its
// hash. The *heap* holds the records, each in one extent of it. A Get is two remote reads: the
// bucket, then the extent that a slot of it names. Where the bucket says that there is no such
// record, it is one.
//
//   bucket   kBucketBytes: sequence, check, flags, kSlots x {fingerprint, version, where, length,
//   crc} extent   {version, key length, record length}, key, record (record.h: its block)
//
// Both verify themselves, because nobody stops the server from changing them while they are read:
//   a bucket   by the CRC32C over all of it, sequence included, which is odd while it changes.
//   an extent  by the version and the CRC32C that the slot has for it: a late reader, whose extent
//              has been used again, sees that it is not the one the slot meant.
//
// A bucket that was read whole was so at one moment, that at which its sequence was read: this is
// where a Get by it takes effect (it linearizes there), whatever happens until the extent is read.
// For an extent that still has the slot's version still has the content that it had then.
//
// The index may lack records (too large, or no room): then their bucket's kAsk flag is set, and
// what is not found there has to be asked for by a call.
//
// Threads:  plain data.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace kv::index {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

// Slots of a bucket: 7 and their head are 256 bytes, four cache lines and one small read. Of a
// table filled to one half, 27 in 1,000 buckets are over-full; with three slots it would be 66.
inline constexpr uint32_t kSlots = 7;

struct Slot {
  uint64_t fingerprint;  // the key's hash
  uint64_t version;      // the extent's; 0: the slot is free
  uint32_t where;        // the extent's place in the heap, in units of kExtentUnitBytes
  uint32_t length;       // of the whole extent, bytes
  uint32_t crc32c;       // of the whole extent
  uint32_t unused;       // 0
};

// Bucket::flags.
inline constexpr uint32_t kAsk = 1;  // a record that belongs here may be missing

struct Bucket {
  uint64_t sequence;  // even; one change makes it greater by two; odd meanwhile
  uint32_t crc32c;    // of the bucket, with 0 in this place, begun with its number
  uint32_t flags;
  uint64_t unused[2];  // 0
  Slot slots[kSlots];
};

struct ExtentHead {
  uint64_t version;
  uint32_t key_bytes;
  uint32_t record_bytes;
};

inline constexpr size_t kBucketBytes = sizeof(Bucket);
static_assert(kBucketBytes == 256);
static_assert(sizeof(Slot) == 32);
static_assert(sizeof(ExtentHead) == 16);

// Extents begin at multiples of a cache line.
inline constexpr uint32_t kExtentUnitBytes = 64;

// The largest extent; larger records are asked for. Bounds what a reader keeps for each read.
inline constexpr uint32_t kMaxExtentBytes = 64 << 10;

}  // namespace kv::index
