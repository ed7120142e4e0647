// The service of compaction.proto: compactions of databases that others have opened.
//
//   a job is    set by                          left for
//   running     StartCompact(); a thread        ended, when RocksDB has returned. A call that is
//               opens the database for reading  cancelled, by its caller, its deadline or its
//               and runs RocksDB's              connection's end, tells RocksDB to stop
//               OpenAndCompact()
//   ended       the call has its answer         gone
//
// The tables of a job go to DATABASE/compaction-SESSION-JOB. Who asks takes them from there and
// says of later jobs which ones are over; their folders go then, with RocksDB's log of the job, but
// for tables that were not taken. Folders of other sessions go whole: a database is opened by one
// process at a time. What the last jobs leave stays until there is a next one.
//
// A job does nothing to the database: it reads tables, and writes into its own folder. So a worker
// that dies costs the time that was waited for it. The database trusts what a worker has written:
// RocksDB looks at the properties of the tables, not at their keys.
//
// Limits: kMaxJobs at most, of which a server may permit fewer. A job is run at once or refused.
//
// Threads: the handler on the engine's thread. The rest from one thread.
// Lifetime: engine and `override.env` outlive it; it outlives the server.
// Errors: as compaction.proto says.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <set>

#include "embed/nbdkit/disk_pool.h"
#include "embed/rocksdb/compaction.weft.h"
#include "rocksdb/options.h"
#include "weft/server.h"
#include "weft/service.h"

namespace weft::embed {

class Compactor final : public wire::Compactor::Service {
 public:
  // Of one process: each has a thread, buffers of some megabytes, and a core to itself at best.
  static constexpr int kMaxJobs = 64;

  // `override`: where the files are (env), and whatever the databases have that is no plain value:
  // comparators, merge operators, filters, and how tables are made (null: RocksDB's block-based
  // ones, without a filter). A database with another comparator is refused by RocksDB.
  // `jobs`: at once, 1 to kMaxJobs.
  Compactor(rocksdb::CompactionServiceOptionsOverride override, int jobs);
  // Tells what runs to stop, and waits.
  ~Compactor() override;

  // What one connection may ask of a server of this service.
  static void LimitServer(ServerOptions* options);

  // Tells what runs to stop, and refuses what comes. Any thread.
  void EndJobs();

  void StartCompact(UnaryCall<wire::CompactRequest, wire::CompactReply> call) override;

 private:
  struct Job {
    std::atomic<bool> canceled{false};
  };

  void Run(UnaryCall<wire::CompactRequest, wire::CompactReply> call, std::shared_ptr<Job> job);
  void RemoveLeftovers(const wire::CompactRequest& request) const;

  const rocksdb::CompactionServiceOptionsOverride override_;
  const int max_jobs_;

  std::mutex mutex_;
  std::set<std::shared_ptr<Job>> jobs_;  // guarded by mutex_
  bool stopping_ = false;                // guarded by mutex_

  DiskPool threads_;  // goes first: its tasks use the rest
};

}  // namespace weft::embed
