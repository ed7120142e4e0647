// RocksDB's SecondaryCache in a weft_rocksd's memory (remote_cache.h).
//
//   rocksdb::LRUCacheOptions options;
//   weft::embed::RegisterWeftSecondaryCache();
//   rocksdb::SecondaryCache::CreateFromString({}, "weft-cache://10.0.0.8:7100?mib:512",
//                                             &options.secondary_cache);
//
// weft_uri.h has the URI's form; besides, `mib:N` is how much memory it asks for (64). With
// libweft_rocksdb.so preloaded, db_bench takes it as --secondary_cache_uri.
//
// A block that leaves the block cache goes there; one that is looked up there with `advise_erase`,
// because the block cache keeps it, leaves the index, and comes back when it leaves the block cache
// again. So the oldest entries, which the ring overwrites first, are those that were used least
// recently. WaitAll() is one batch of one-sided reads.
//
// Errors: a URI that makes no sense. Without its server it is empty, and connects again by itself.
// Threads: as RocksDB's interface says: any. Lifetime: handles go before their cache.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "embed/rocksdb/remote_cache.h"
#include "rocksdb/secondary_cache.h"

namespace weft::embed {

absl::StatusOr<std::unique_ptr<rocksdb::SecondaryCache>> OpenWeftSecondaryCache(
    const std::string& uri);

// The same of a cache that is open.
std::unique_ptr<rocksdb::SecondaryCache> MakeWeftSecondaryCache(std::unique_ptr<RemoteCache> cache);

// Makes RocksDB know "weft-cache://" of secondary caches, in this process.
void RegisterWeftSecondaryCache();

}  // namespace weft::embed
