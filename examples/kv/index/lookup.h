// The client's side of the index (layout.h): what bytes that were read say.
//
//   LookUp(bucket)   -> torn: read it again; absent: there is no record; ask: by a call; found:
//   where OpenExtent(...)  -> stale: look it up again; another key's: ask; found: the record
//
// Nothing in the bytes is trusted before it has been checked, lengths least of all.
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

// CRC32C of a bucket as it is to stand in it.
uint32_t CheckOf(const Bucket& bucket, uint32_t number);

enum class Found : uint8_t { kTorn = 1, kAbsent, kAsk, kRecord };

// `number`: which bucket it was meant to be. kRecord: `slot` tells where.
Found LookUp(const Bucket& bucket, uint32_t number, uint64_t hash, Slot* slot,
             SelfCheck check = SelfCheck::kOn);

// Whether such an extent can be in a heap so long.
bool InHeap(const Slot& slot, uint64_t heap_bytes);

// `extent`: slot.length bytes, read from the slot's place. kTorn: it is not (or not any more) the
// extent that the slot meant. kRecord: `block` is the record's (record.h).
Found OpenExtent(weft::ByteSpan extent, const Slot& slot, std::string_view key,
                 std::string_view* block, SelfCheck check = SelfCheck::kOn);

}  // namespace kv::index
