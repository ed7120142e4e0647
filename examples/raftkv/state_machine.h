// The state of the replicated key-value server: records, sessions, and how far it has come in the
// log, in one RocksDB. The same commands in the same order make the same state at every member.
//
// A command and the index of its entry are written in one WriteBatch, so each state that there can
// be, also after a crash, is that after some entry, and what is applied again is skipped by its
// index. RocksDB has no log of its own here: a command is written once, in the group's log, and a
// state that was not flushed is behind, which libraft mends at start with its snapshot and log. So
// is a state that cannot be read: it is removed, and made again.
//
//   keys      "m" StateHeader; "l" Lead; "r" KEY, a record's block (kv::Record);
//             "s" SESSION (eight bytes, big-endian), SessionRecord
//   sessions  one call at a time: of a session the last call's outcome is kept. An older sequence
//             is refused, the last one gets the same outcome again. Beyond max_sessions the one
//             that was not used for the longest time (counted in entries) is forgotten.
//
// Threads: one, but for Snapshot::Read(). Lifetime: outlives its snapshots.
// Errors: those of commands, as kv.proto says, are outcomes, and the same everywhere. An error that
//   Apply() or Restore() returns is this machine's (a disk): the state must not be used any
//   further; but for DATA_LOSS of Restore().
// Invariants: header().bytes is the sum of the records' charges; what is restored is what a
//   snapshot held, or nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/kv/kv.pb.h"
#include "examples/kv/store.h"
#include "examples/raftkv/log.pb.h"

namespace rocksdb {
class DB;
class Env;
class Snapshot;
class WriteBatchWithIndex;
}  // namespace rocksdb

namespace raftkv {

// The same at all members: they decide what becomes of a command. A snapshot is held in memory as a
// whole, by who takes it and by who restores it, and so bounds the state.
struct StateOptions {
  kv::StoreLimits limits = {.max_bytes = uint64_t{1} << 30};
  size_t max_sessions = 16'384;  // 1 KiB of memory each, with an outcome's words
  // RocksDB's; null: the file system.
  rocksdb::Env* env = nullptr;
};

// An entry of the log as it lies there: its length, the encoded Entry, and zeros up to a multiple
// of eight bytes, as libraft's log on disk wants it.
std::string EncodeEntry(const Entry& entry);
// False: no entry. Nothing is trusted.
bool DecodeEntry(std::string_view bytes, Entry* entry);

class StateMachine {
 public:
  static constexpr size_t kMaxSessionsAtOnce = 4'096;

  // A state at one moment, while the machine goes on.
  class Snapshot {
   public:
    ~Snapshot();
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;

    // All of it, in pieces of about kPieceBytes. Any thread.
    absl::Status Read(std::vector<std::string>* pieces) const;

   private:
    friend class StateMachine;
    explicit Snapshot(rocksdb::DB* db);

    rocksdb::DB& db_;
    const rocksdb::Snapshot* const snapshot_;
  };
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // A state that is damaged is removed, and made anew. Errors: INTERNAL, RocksDB's words; also
  // where another process has this folder.
  static absl::StatusOr<std::unique_ptr<StateMachine>> Open(const std::string& folder,
                                                            const StateOptions& options = {});
  ~StateMachine();
  StateMachine(const StateMachine&) = delete;
  StateMachine& operator=(const StateMachine&) = delete;

  // Of a request before it goes into the log: INVALID_ARGUMENT where no state would take it. What
  // passes may still be refused when it is carried out.
  static absl::Status Check(const kv::PutRequest& request, const kv::StoreLimits& limits);

  // Carries out the entry at `index`. Its outcomes are in outcomes() until the next one; none, if
  // it had been applied before.
  absl::Status Apply(uint64_t index, std::string_view bytes);
  const std::vector<Outcome>& outcomes() const { return outcomes_; }

  absl::Status Get(std::string_view key, kv::GetReply* reply) const;
  absl::Status Scan(const kv::ScanRequest& request, kv::ScanReply* reply) const;

  const kv::StoreLimits& limits() const { return options_.limits; }
  const StateHeader& header() const { return header_; }
  // The last leader that has begun.
  const Lead& lead() const { return lead_; }
  size_t sessions() const { return sessions_.size(); }

  std::unique_ptr<Snapshot> TakeSnapshot();
  // Makes the state that of a snapshot; nothing happens if this one is as new. DATA_LOSS: these
  // bytes are no snapshot, and nothing has changed.
  absl::Status Restore(std::string_view bytes);

  // What was applied is on disk when this returns. For tests of what crashes leave.
  absl::Status Flush();

 private:
  using Batch = rocksdb::WriteBatchWithIndex;

  StateMachine(std::string folder, const StateOptions& options);

  absl::Status OpenDatabase();
  absl::Status Remove();
  absl::Status Load();
  // By a snapshot that was looked at, which has this header.
  absl::Status Replace(std::string_view bytes, const StateHeader& header);

  absl::Status Run(const Command& command, uint64_t index, Batch* batch, Outcome* outcome);
  absl::Status RunOnce(const Command& command, const kv::CallId& call, uint64_t index, Batch* batch,
                       Outcome* outcome);
  absl::Status Put(const kv::PutRequest& request, Batch* batch, Outcome* outcome);
  absl::Status Delete(const kv::DeleteRequest& request, Batch* batch, Outcome* outcome);
  absl::Status Open(const OpenSessions& request, uint64_t index, Batch* batch, Outcome* outcome);
  absl::Status KeepSession(uint64_t id, SessionRecord record, Batch* batch);
  absl::Status Find(const Batch& batch, std::string_view key, std::string* block, bool* found);

  const std::string folder_;
  const StateOptions options_;
  std::unique_ptr<rocksdb::DB> db_;

  // As in the database.
  StateHeader header_;
  Lead lead_;
  absl::flat_hash_map<uint64_t, SessionRecord> sessions_;
  std::set<std::pair<uint64_t, uint64_t>> by_use_;  // used_index, id

  std::vector<Outcome> outcomes_;
};

}  // namespace raftkv
