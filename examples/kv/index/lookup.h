// The client's side of the index (layout.h): what bytes that were read say.
//
//   LookUp(bucket)   -> absent: there is no record; ask: by a call; record: a slot says where
//   OpenExtent(...)  -> stale: look it up again; ask: it is another key's; record: here it is
//
// Buckets have been read whole (rpc/layout/record.h). Apart from that, nothing in the bytes is
// trusted before it has been checked, lengths least of all.
//
// Threads:  pure functions. Lifetime: views borrow from their arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/bytes.h"
#include "examples/kv/index/layout.h"

namespace kv::index {

// Whether bytes that do not verify are refused; a test that shows what this is good for says no.
enum class SelfCheck : uint8_t { kOn = 1, kOff };

enum class Found : uint8_t { kAbsent = 1, kAsk, kRecord, kStale };

// kRecord: `slot` says where.
Found LookUp(const BucketLayout& bucket, uint64_t hash, SlotLayout* slot);

// Whether such an extent can be in a heap so long.
bool InHeap(const SlotLayout& slot, uint64_t heap_bytes);

// `extent`: slot.length bytes, read from the slot's place. kStale: it is not (or not any more) the
// extent that the slot meant. kRecord: `block` is the record's (record.h).
Found OpenExtent(weft::ByteSpan extent, const SlotLayout& slot, std::string_view key,
                 std::string_view* block, SelfCheck check = SelfCheck::kOn);

}  // namespace kv::index
