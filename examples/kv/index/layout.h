// How the index lies in memory: what a client finds that reads it without asking the server.
//
// Two exported regions. The *table* is an array of buckets; a key belongs to one of them, by its
// hash. The *heap* holds the records, each in one extent of it: head, key, block (record.h). A Get
// is two remote reads: the bucket, then the extent that a slot of it names. Where the bucket says
// that there is no such record, it is one.
//
// Both verify themselves, because nobody stops the server from changing them while they are read:
//   a bucket   is a record with sequence word and checksum (rpc/record.h).
//   an extent  has the version and the CRC32C that the slot says: a late reader, whose extent has
//              been used again, sees that it is not the one the slot meant.
//
// A bucket that was read whole stood so at one moment during the read: this is where a Get by it
// takes effect (it linearizes there), however late the extent is read. For an extent that has the
// slot's version has the content that it had then.
//
// The index may lack records (too large, or no room): then their bucket's kAsk flag is set, and
// what is not found there has to be asked for by a call.
//
// Threads:  plain data.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kv::index {

static_assert(std::endian::native == std::endian::little, "the layout is little-endian");

// Slots of a bucket: 7 and their head are 256 bytes, four cache lines and one small read. Of a
// table filled to one half, 27 in 1,000 buckets are over-full; with three slots it would be 66.
inline constexpr uint32_t kSlots = 7;

struct SlotLayout {
  uint64_t fingerprint = 0;  // the key's hash
  uint64_t version = 0;      // the extent's; 0: the slot is free
  uint32_t where = 0;        // the extent's place in the heap, in units of kExtentUnitBytes
  uint32_t length = 0;       // of the whole extent, bytes
  uint32_t crc32c = 0;       // of the whole extent
  uint32_t unused = 0;
};

// BucketLayout::flags.
inline constexpr uint32_t kAsk = 1;  // a record that belongs here may be missing

struct BucketLayout {
  static constexpr std::string_view kLayoutName = "kv.index.Bucket";
  static constexpr uint64_t kLayoutHash = 1;
  static constexpr bool kChecked = true;
  uint64_t sequence = 0;
  uint64_t flags = 0;
  std::array<SlotLayout, kSlots> slots = {};
  uint64_t unused = 0;
  uint64_t checksum_ = 0;
};

inline constexpr size_t kBucketBytes = sizeof(BucketLayout);
static_assert(kBucketBytes == 256);
static_assert(sizeof(SlotLayout) == 32);

// Before each extent's key and record.
struct ExtentHead {
  uint64_t version;
  uint32_t key_bytes;
  uint32_t record_bytes;
};
static_assert(sizeof(ExtentHead) == 16);

// Extents begin at multiples of a cache line.
inline constexpr uint32_t kExtentUnitBytes = 64;

// The largest extent; larger records are asked for. Bounds what a reader keeps for each read.
inline constexpr uint32_t kMaxExtentBytes = 64 << 10;

}  // namespace kv::index
