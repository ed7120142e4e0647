// A member of the group: libraft with a StateMachine, for handlers of calls.
//
//   raft_uv_init(&io, ...);  RaftNetwork::Attach(&io, ...);       // disk and network
//   auto replica = Replica::Create(&io, state.get(), options, failed);
//   replica->Bootstrap(members);  replica->Start("10.0.0.1:9101");
//   replica->Execute(command, [](const absl::Status&, const Outcome*) { ... });
//   replica->Read([](const absl::Status&) { ... });
//
// Commands and reads wait in one queue. While fewer than kMaxProposals entries of this member are
// under way, what waits becomes the next one: all commands up to kMaxEntryBytes, or a barrier if
// there are reads only. A read is carried out when the first entry that was proposed after it came
// is applied. By then a majority has accepted an entry of this leader's term that is younger than
// the read, so that no other leader can have committed anything before the read came that this
// state lacks: reads are linearizable, and need no clock.
//
//   state      set by                        left for
//   kMade      Create()                      kRunning, kClosed
//   kRunning   Start()                       kClosing; kFailed
//   kClosing   Close()                       kClosed, when libraft has called back
//   kFailed    a disk that does not write,   -
//              a state that is broken, or
//              libraft has given up
//   kClosed    the end
//
// A member whose disk fails does not go on: libraft 0.15 would truncate its own log and still lead,
// with an entry that others may have. `failed` is called, once, before libraft hears of it, and
// libraft is never called back: the process ends, and comes back with what is on its disk. What
// else libraft 0.15 does wrong is put right (embed/raft/raft_repair.h).
//
// The log in memory, which libraft bounds by a number of entries only, is bounded by a snapshot as
// soon as kMaxLogBytes were applied since the last one.
//
// Threads: the engine's, that of libraft's loop. Lifetime: io, engine and state outlive it.
// Errors: UNAVAILABLE with a Leader (kLeaderPayload): not run; ask there. UNAVAILABLE without it:
//   leadership was lost, and the command may be carried out later. RESOURCE_EXHAUSTED: kMaxWaiting
//   or kMaxWaitingBytes, not run. Of changes, as raftkv.proto says.
// Invariants: each callback runs once, not inside the function that it was given to unless that
//   refuses; commands run in the order of Execute().
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_network.h"
#include "embed/raft/raft_repair.h"
#include "examples/raftkv/raftkv.pb.h"
#include "examples/raftkv/state_machine.h"
#include "weft/channel.h"

namespace raftkv {

// The name of the payload of a status that holds a Leader.
inline constexpr std::string_view kLeaderPayload = "raftkv.Leader";

struct ReplicaOptions {
  raft_id id = 0;       // 1 or more; not another member's, ever
  std::string address;  // among members
  // Behaviour. How long a leader may be silent before others elect: shorter, less time without a
  // leader, and more elections on a busy machine.
  unsigned election_ms = 1'000;
  unsigned heartbeat_ms = 100;
  // Entries between two snapshots: more, a longer log to apply at start; fewer, more writing.
  unsigned snapshot_entries = 65'536;
  // Snapshots are read on a thread of libuv's pool: where the disk half has async_work().
  bool snapshots_on_a_thread = true;
  // What commits are timed by; outlives the replica. Null: the system's.
  const weft::Clock* clock = nullptr;
};

struct ReplicaStats {  // since Create()
  uint64_t entries = 0;
  uint64_t commands = 0;
  uint64_t barriers = 0;
  uint64_t snapshots_taken = 0;
  uint64_t snapshots_restored = 0;
};

class Replica {
 public:
  // Two entries on their way hide the disk's latency from each other; more make smaller batches.
  static constexpr size_t kMaxProposals = 4;
  // Of commands; a single one may be larger (kv.proto: 16 MiB).
  static constexpr size_t kMaxEntryBytes = size_t{1} << 20;
  static constexpr size_t kMaxWaiting = 65'536;
  static constexpr size_t kMaxWaitingBytes = size_t{256} << 20;
  static constexpr uint64_t kMaxLogBytes = uint64_t{256} << 20;
  // Entries that stay behind a snapshot, for members that are a little behind; fewer when the log
  // is full of large ones.
  static constexpr unsigned kTrailing = 4'096;
  static constexpr unsigned kTrailingOfLarge = 64;

  using Executed = weft::Function<void(const absl::Status&, const Outcome*)>;
  using Done = weft::Function<void(const absl::Status&)>;

  // Puts functions of its own before io's start, append and close, and RaftRepair's before them.
  static absl::StatusOr<std::unique_ptr<Replica>> Create(raft_io* io, StateMachine* state,
                                                         const ReplicaOptions& options,
                                                         Done failed);
  // After Close() has called back, or of a disk half whose close() calls back at once.
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  struct Voter {
    raft_id id = 0;
    std::string address;
  };
  // The members of a new group: each of them is told the same. OK also if it was done before.
  absl::Status Bootstrap(const std::vector<Voter>& voters);
  // `client_address`: where clients reach it, which it tells when it leads.
  absl::Status Start(const std::string& client_address);
  // What is under way ends with UNAVAILABLE. `closed` runs once.
  void Close(weft::Function<void()> closed);

  // OK: the command was carried out, and this came of it.
  void Execute(Command command, Executed done);
  // OK: what the state holds now may be read.
  void Read(Done done);
  void Change(const ChangeRequest& request, Done done);
  void Transfer(raft_id id, Done done);

  bool leads() const;
  // With `network`: by which path members are reached; may be null.
  void Describe(weft::embed::RaftNetwork* network, StatusReply* reply) const;
  const ReplicaStats& stats() const { return stats_; }
  // Of the commands' entries that this member has proposed as leader: from raft_apply() to its
  // callback, when a majority has the entry on disk and this member's state has it.
  const weft::LatencyHistogram& commit_latency() const { return commit_latency_; }
  void RestartCommitLatency() { commit_latency_.Reset(); }

 private:
  enum class Phase : uint8_t { kMade = 1, kRunning, kClosing, kFailed, kClosed };
  struct Functions;  // raft_io's and raft_fsm's
  struct Waiting {
    Command command;
    Executed done;
  };
  struct Proposal;
  struct Changing;
  struct Transferring;

  Replica(raft_io* io, StateMachine* state, const ReplicaOptions& options, Done failed);

  // Proposes what waits, as far as it may.
  void Propose();
  void End(std::list<Proposal>::iterator proposal, int status);
  // After whatever may have changed who leads.
  void Look();
  void RefuseWaiting(const absl::Status& why);
  void Fail(const absl::Status& why);
  void CloseDiskWhenWritten();
  void RestoreClose();
  absl::Status NotLeading() const;
  absl::Status ErrorOf(int code, std::string_view what) const;
  void StartChange(const ChangeRequest& request, Changing* changing);

  raft_io* const io_;
  StateMachine& state_;
  const ReplicaOptions options_;
  const weft::Clock& clock_;
  Done failed_;
  Phase phase_ = Phase::kMade;
  raft_fsm fsm_ = {};
  struct raft raft_ = {};
  ReplicaStats stats_;
  weft::LatencyHistogram commit_latency_;

  const raft_io disk_;  // what was in io
  raft_io_tick_cb tick_ = nullptr;
  raft_io_recv_cb receive_ = nullptr;
  std::optional<weft::embed::RaftRepair> repair_;  // before this object's functions

  size_t appends_ = 0;  // that the disk has not called back
  // libraft's callback for a disk that has closed; null: it was not asked to, or has called back.
  // libraft 0.15's disk half has two defects here. It calls back again, when something else of it
  // ends later. And it frees twice what takes entries off the log on disk, if that is under way
  // when it is closed: so it is told when it has called back every append, behind which nothing
  // is left to do: libraft appends whenever it has taken something off.
  raft_io_close_cb disk_closed_ = nullptr;
  bool disk_closing_ = false;  // it was told
  // By ~Replica(): libraft 0.15 takes what it could not append off its log's end, and is right only
  // if the last one comes first.
  std::vector<std::pair<raft_io_append*, raft_io_append_cb>> canceled_;

  std::list<Waiting> waiting_;  // commands, in their order
  size_t waiting_bytes_ = 0;
  std::vector<Done> reads_;  // that wait
  std::list<Proposal> proposals_;
  std::list<Changing> changes_;
  std::unique_ptr<Transferring> transfer_;
  std::string client_address_;
  raft_term led_term_ = 0;  // the last one in which this member has said that it leads

  uint64_t log_bytes_ = 0;  // applied since the last snapshot
  std::unique_ptr<StateMachine::Snapshot> snapshot_;
  std::vector<std::string> pieces_;  // of it
  std::vector<raft_buffer> buffers_;
  weft::Function<void()> closed_;
};

}  // namespace raftkv
