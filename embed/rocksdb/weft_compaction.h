// RocksDB's CompactionService by the workers of weft_compactord: compactions run in another
// process, on another machine, which reads and writes the database's files there (weft_rocksd).
//
//   auto compaction = weft::embed::OpenWeftCompaction("weft-compactor://10.0.0.9:7200");
//   if (!compaction.ok()) return compaction.status();
//   options.compaction_service = *compaction;
//   options.env = env.get();                       // on weft://, as in weft_file_system.h
//   rocksdb::DB::Open(options, "/db", &db);
//
// The database and the worker have the same path for it: the worker's --files is the URI that the
// database's file system was opened with. RocksDB serializes plain options; comparators, merge
// operators, filters and the like must be the worker's as well (compactor.h), which is a program of
// your own then. RocksDB calls the interface experimental (7.8).
//
// A compaction that cannot run there, or ends with an error, runs here: RocksDB is told kUseLocal.
// So a worker that is killed, or was never there, costs what it had done, and no write.
//
// Limits: `deadline` seconds for a job, 1 to 86,400 (600); as many jobs as RocksDB has compactions.
// URI: weft_uri.h; it has no folder.
//
// Threads: as RocksDB's interface says: any. Lifetime: outlives the databases that use it.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "rocksdb/options.h"

namespace weft::embed {

// One connection of its own, which is made when there is a first job.
// INVALID_ARGUMENT: the URI; others: Channel::Open()'s.
absl::StatusOr<std::shared_ptr<rocksdb::CompactionService>> OpenWeftCompaction(
    const std::string& uri);

}  // namespace weft::embed
