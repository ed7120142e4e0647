#include "embed/raft/raft_repair.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "embed/raft/raft_io_table.h"
#include "embed/raft/raft_log.h"
#include "embed/raft/raft_wire.h"

namespace weft::embed {
namespace {

// Of bytes: libraft makes a configuration's a multiple of it, and a barrier of as many.
constexpr size_t kWord = 8;

// --- the log -------------------------------------------------------------------------------------

// The last change of members in the log that is below `end`, and behind `after`; 0: none.
raft_index LastChangeBefore(const raft_log& log, raft_index end, raft_index after = 0) {
  for (raft_index index = end - 1; index > std::max(after, log.offset); --index) {
    const raft_entry* const entry = EntryAt(log, index);
    if (entry != nullptr && entry->type == RAFT_CHANGE) return index;
  }
  return 0;
}

// The log has the entry before the message's. One that is unknown here matches nothing, a peer's
// term of 0 least of all.
bool HasBefore(const raft_log& log, const raft_append_entries& message) {
  if (message.prev_log_index == 0) return true;
  const raft_term own_term = TermAt(log, message.prev_log_index);
  return own_term != 0 && own_term == message.prev_log_term;
}

// The first entry that libraft will take off its log for this message, and all behind it; 0: none.
raft_index FirstConflict(const raft& raft, const raft_append_entries& message) {
  const raft_index before = message.prev_log_index;
  if (message.term < raft.current_term) return 0;  // it will be refused
  if (!HasBefore(raft.log, message)) return 0;
  for (unsigned i = 0; i < message.n_entries; ++i) {
    const raft_term term = TermAt(raft.log, before + 1 + i);
    if (term == 0) return 0;  // the log ends before it
    if (term != message.entries[i].term) return before + 1 + i;
  }
  return 0;
}

// This member's log will be the leader's, up to the end of this message. 0: it refuses it, or it is
// about something else.
raft_index SameAfter(const raft& raft, const raft_message& message) {
  if (message.type == RAFT_IO_INSTALL_SNAPSHOT) return message.install_snapshot.last_index;
  if (message.type != RAFT_IO_APPEND_ENTRIES) return 0;
  const raft_append_entries& append = message.append_entries;
  return HasBefore(raft.log, append) ? append.prev_log_index + append.n_entries : 0;
}

// --- configurations ------------------------------------------------------------------------------

// Those at its end, if they are no more than what libraft 0.15 leaves: more than that has been
// written, by a later release say, and means something to other members.
size_t UnwrittenBytes(const raft_entry& entry) {
  if (entry.type == RAFT_BARRIER) return entry.buf.len <= kWord ? entry.buf.len : 0;
  if (entry.type != RAFT_CHANGE) return 0;
  size_t behind = 0;
  raft_configuration configuration;
  raft_configuration_init(&configuration);
  const bool decoded = DecodeConfiguration(entry.buf, &configuration, &behind);
  raft_configuration_close(&configuration);
  return decoded && behind < kWord ? behind : 0;
}

// The snapshot may also end before where the change stood: then other entries come there, and one
// of those that goes would have libraft take back a change that is not in the log.
void ForgetCoveredChange(raft* raft) {
  const raft_index index = raft->configuration_uncommitted_index;
  const raft_entry* const entry = EntryAt(raft->log, index);
  if (index > raft->log.snapshot.last_index && entry != nullptr && entry->type == RAFT_CHANGE) {
    return;
  }
  raft->configuration_uncommitted_index = 0;
}

bool Copy(const raft_configuration& from, raft_configuration* to) {
  for (unsigned i = 0; i < from.n; ++i) {
    const raft_server& server = from.servers[i];
    if (raft_configuration_add(to, server.id, server.address, server.role) != 0) return false;
  }
  return true;
}

// Before a follower votes or stands for election: the last change in its log is in force, and under
// way until it is applied, whether its disk has it or not.
void TakeUpLastChange(raft* raft) {
  if (raft->state != RAFT_FOLLOWER) return;
  const raft_log& log = raft->log;
  const raft_index index = LastChangeBefore(log, LastIndex(log) + 1, raft->last_applied);
  if (index == 0 || index == raft->configuration_uncommitted_index) return;
  raft_configuration last;
  raft_configuration_init(&last);
  if (!DecodeConfiguration(EntryAt(log, index)->buf, &last)) {
    return raft_configuration_close(&last);
  }
  raft_configuration_close(&raft->configuration);
  raft->configuration = last;
  raft->configuration_uncommitted_index = index;
}

// For each term and vote that could not be stored, before libraft is told so.
void AfterFailedWrite(raft* raft) {
  // The union's member that libraft is about to take for the valid one. Where the candidate stays
  // one, its list of votes is beside it.
  if (raft->state == RAFT_CANDIDATE) raft->follower_state.current_leader.address = nullptr;
}

// Of a follower's leader, for as long as makes a voter ask for an election.
bool IsSilent(const raft& raft) {
  const raft_time silent_ms = raft.io->time(raft.io) - raft.election_timer_start;
  return silent_ms >= raft.follower_state.randomized_election_timeout;
}

// Nobody else has a vote: libraft then makes it the leader without asking, and in the term it is
// in.
bool IsOnlyVoter(const raft& raft) {
  bool is_voter = false;
  for (unsigned i = 0; i < raft.configuration.n; ++i) {
    const raft_server& server = raft.configuration.servers[i];
    if (server.role != RAFT_VOTER) continue;
    if (server.id != raft.id) return false;
    is_voter = true;
  }
  return is_voter;
}

// libraft is about to take the leadership, as its leader says, without asking for votes.
bool IsToldToLead(const raft& raft, const raft_message& message) {
  return message.type == RAFT_IO_TIMEOUT_NOW && raft.state == RAFT_FOLLOWER &&
         raft.follower_state.current_leader.id == message.server_id &&
         message.timeout_now.term == raft.current_term && IsOnlyVoter(raft);
}

// This member in its own configuration, if a candidate asks it for a vote though it is no voter
// there, and if its leader is silent. Null else.
raft_server* NonVoterAsked(raft* raft, const raft_message& message) {
  if (message.type != RAFT_IO_REQUEST_VOTE || raft->state != RAFT_FOLLOWER) return nullptr;
  if (!IsSilent(*raft)) return nullptr;
  for (unsigned i = 0; i < raft->configuration.n; ++i) {
    raft_server& server = raft->configuration.servers[i];
    if (server.id == raft->id) return server.role == RAFT_VOTER ? nullptr : &server;
  }
  return nullptr;
}

// Takes out of a message what is before the end of this member's snapshot, where its log does not
// have the entry before the message's first one. All that is committed, so that whoever leads has
// the same: the message then begins behind the snapshot.
void SkipCovered(const raft& raft, raft_append_entries* message) {
  const raft_index end = raft.log.snapshot.last_index;
  const raft_index before = message->prev_log_index;
  if (raft.log.offset == 0 || before >= end || TermAt(raft.log, before) != 0) return;
  if (before > 0 && message->prev_log_term == 0) return;                   // no leader says so
  if (message->term < raft.current_term) return;                           // it will be refused
  if (raft.last_stored == 0 && raft.snapshot.put.data != nullptr) return;  // it is being installed
  const auto covered =
      static_cast<unsigned>(std::min<raft_index>(end - before, message->n_entries));
  if (covered > 0) {
    void* const batch = message->entries[0].batch;
    message->n_entries -= covered;
    std::memmove(message->entries, message->entries + covered,
                 message->n_entries * sizeof(raft_entry));
    if (message->n_entries == 0) {  // libraft frees none then
      raft_free(batch);
      raft_free(std::exchange(message->entries, nullptr));
    }
  }
  message->prev_log_index = end;
  message->prev_log_term = raft.log.snapshot.last_term;
}

// While a leader's own disk has no entry of its term: takes back from an answer what is not
// committed yet, so that it counts for none of the earlier terms' entries.
void HoldBack(const raft& raft, raft_append_entries_result* answer) {
  if (raft.state != RAFT_LEADER || answer->rejected != 0) return;
  if (TermAt(raft.log, raft.last_stored) == raft.current_term) return;
  answer->last_log_index = std::min(answer->last_log_index, raft.commit_index);
}

// A candidate of an earlier term hears of this one.
void TellTerm(const raft& raft, raft_request_vote_result* answer) {
  if (!answer->vote_granted) answer->term = std::max(answer->term, raft.current_term);
}

// An answer to the leader that a follower would have. Who does not follow has something else there.
bool IsToNobody(const raft& raft, const raft_message& message) {
  return raft.state != RAFT_FOLLOWER && message.server_id == raft.follower_state.current_leader.id;
}

void ClearUnwritten(const raft_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const raft_buffer& bytes = entries[i].buf;
    const size_t unwritten = UnwrittenBytes(entries[i]);
    if (unwritten == 0) continue;
    std::memset(static_cast<char*>(bytes.base) + (bytes.len - unwritten), 0, unwritten);
  }
}

constinit RaftIoTable<RaftRepair> repairs;

}  // namespace

// --- what libraft calls --------------------------------------------------------------------------

struct RaftRepair::Functions {
  static RaftRepair& Self(const raft_io* io) { return *repairs.Find(io); }

  static int Load(raft_io* io, raft_term* term, raft_id* voted_for, raft_snapshot** snapshot,
                  raft_index* start_index, raft_entry** entries, size_t* n_entries) {
    RaftRepair& self = Self(io);
    self.TakePlaceOfStateMachine();
    const int code =
        self.below_.load(io, term, voted_for, snapshot, start_index, entries, n_entries);
    if (code != 0) return code;
    if (*snapshot != nullptr) self.KeepSnapshot(**snapshot);
    ClearUnwritten(*entries, *n_entries);
    return 0;
  }

  static int SetTerm(raft_io* io, raft_term term) {
    RaftRepair& self = Self(io);
    const int code = self.below_.set_term(io, term);
    if (code != 0) AfterFailedWrite(self.Raft());
    return code;
  }

  static int SetVote(raft_io* io, raft_id id) {
    RaftRepair& self = Self(io);
    const int code = self.below_.set_vote(io, id);
    if (code != 0) AfterFailedWrite(self.Raft());
    return code;
  }

  static int Send(raft_io* io, raft_io_send* request, const raft_message* message,
                  raft_io_send_cb callback) {
    const RaftRepair& self = Self(io);
    raft_message correct = *message;
    switch (message->type) {
      case RAFT_IO_APPEND_ENTRIES:
        if (self.HasLostAppend(0)) return RAFT_NOCONNECTION;
        break;
      case RAFT_IO_APPEND_ENTRIES_RESULT:
        if (IsToNobody(*self.Raft(), *message)) return RAFT_NOCONNECTION;
        self.Correct(&correct.append_entries_result);
        break;
      case RAFT_IO_REQUEST_VOTE_RESULT:
        TellTerm(*self.Raft(), &correct.request_vote_result);
        break;
      default:
        break;
    }
    return self.below_.send(io, request, &correct, callback);
  }

  static int Start(raft_io* io, unsigned msecs, raft_io_tick_cb tick, raft_io_recv_cb receive) {
    RaftRepair& self = Self(io);
    self.tick_ = tick;
    self.receive_ = receive;
    const int code = self.below_.start(io, msecs, Tick, Receive);
    if (code != 0 || !IsOnlyVoter(*self.Raft())) return code;
    return self.BeginTermAlone();
  }

  static void Tick(raft_io* io) {
    RaftRepair& self = Self(io);
    raft* const raft = self.Raft();
    if (raft->state == RAFT_FOLLOWER && IsSilent(*raft)) {
      TakeUpLastChange(raft);
      // If it cannot be stored, it leads no earlier than it can.
      if (IsOnlyVoter(*raft) && self.BeginTermAlone() != 0) return;
    }
    self.tick_(io);
    // If there was no memory for its barrier, or no vote to be asked for.
    if (raft->state == RAFT_LEADER && LastIndex(raft->log) > raft->commit_index) self.BeginTerm();
  }

  static void Receive(raft_io* io, raft_message* message) {
    RaftRepair& self = Self(io);
    raft* const raft = self.Raft();
    if (message->type == RAFT_IO_APPEND_ENTRIES && raft->state != RAFT_UNAVAILABLE) {
      SkipCovered(*raft, &message->append_entries);
    }
    self.BeforeMessage(*message);
    if (message->type == RAFT_IO_REQUEST_VOTE || message->type == RAFT_IO_TIMEOUT_NOW) {
      TakeUpLastChange(raft);
    }
    if (IsToldToLead(*raft, *message)) {
      // Not stored: libraft hears nothing, and the leader stays, or tries again.
      if (self.BeginTermAlone() != 0) return;
      message->timeout_now.term = raft->current_term;
    }
    if (message->type == RAFT_IO_APPEND_ENTRIES_RESULT) {
      HoldBack(*raft, &message->append_entries_result);
    }
    if (message->type == RAFT_IO_REQUEST_VOTE_RESULT) {
      self.receive_(io, message);
      return self.BeginTerm();
    }
    raft_server* const asked = NonVoterAsked(raft, *message);
    if (asked == nullptr) return self.receive_(io, message);
    // While libraft decides: a request for a vote changes neither the configuration nor the leader.
    const int role = std::exchange(asked->role, RAFT_VOTER);
    const raft_id leader = std::exchange(raft->follower_state.current_leader.id, 0);
    self.receive_(io, message);
    asked->role = role;
    if (raft->state == RAFT_FOLLOWER) raft->follower_state.current_leader.id = leader;
  }

  static int Append(raft_io* io, raft_io_append* request, const raft_entry* entries, unsigned n,
                    raft_io_append_cb callback) {
    RaftRepair& self = Self(io);
    if (self.HasLostAppend(n)) return RAFT_IOERR;
    ClearUnwritten(entries, n);
    const int code = self.below_.append(io, request, entries, n, callback);
    if (code == 0) self.NoteAppend();
    return code;
  }

  static int PutSnapshot(raft_io* io, unsigned trailing, raft_io_snapshot_put* request,
                         const raft_snapshot* snapshot, raft_io_snapshot_put_cb callback) {
    RaftRepair& self = Self(io);
    self.KeepSnapshot(*snapshot);
    return self.below_.snapshot_put(io, trailing, request, snapshot, callback);
  }

  static int TakeSnapshot(raft_fsm* fsm, raft_buffer** buffers, unsigned* count) {
    const StateMachine& asked = *reinterpret_cast<StateMachine*>(fsm);
    if (!asked.repair->PermitsSnapshot()) return RAFT_BUSY;
    return asked.users->snapshot(asked.users, buffers, count);
  }
};

// --- life ----------------------------------------------------------------------------------------

RaftRepair::RaftRepair(raft_io* io) : io_(io), below_(*io) {
  static_assert(offsetof(StateMachine, copy) == 0);
  raft_configuration_init(&snapshot_);
  WEFT_CHECK(repairs.Find(io) == nullptr);  // User: it has none yet
  repairs.Add(io, this);
  io->load = Functions::Load;
  io->set_term = Functions::SetTerm;
  io->set_vote = Functions::SetVote;
  io->send = Functions::Send;
  io->start = Functions::Start;
  io->append = Functions::Append;
  io->snapshot_put = Functions::PutSnapshot;
}

RaftRepair::~RaftRepair() {
  // A network half that was below this may be gone, and have put the disk half's own there.
  const auto put_back = [](auto& function, auto own, auto below) {
    if (function == own) function = below;
  };
  put_back(io_->load, Functions::Load, below_.load);
  put_back(io_->set_term, Functions::SetTerm, below_.set_term);
  put_back(io_->set_vote, Functions::SetVote, below_.set_vote);
  put_back(io_->send, Functions::Send, below_.send);
  put_back(io_->start, Functions::Start, below_.start);
  put_back(io_->append, Functions::Append, below_.append);
  put_back(io_->snapshot_put, Functions::PutSnapshot, below_.snapshot_put);
  repairs.Remove(io_);
  raft_configuration_close(&snapshot_);
}

void RaftRepair::TakePlaceOfStateMachine() {
  raft_fsm*& fsm = Raft()->fsm;
  if (fsm == &state_machine_.copy) return;  // loaded again
  state_machine_ = {*fsm, fsm, this};
  state_machine_.copy.snapshot = Functions::TakeSnapshot;
  fsm = &state_machine_.copy;
}

// --- repairs -------------------------------------------------------------------------------------

void RaftRepair::KeepSnapshot(const raft_snapshot& snapshot) {
  raft_configuration_close(&snapshot_);
  raft_configuration_init(&snapshot_);
  snapshot_index_ = Copy(snapshot.configuration, &snapshot_) ? snapshot.configuration_index : 0;
}

void RaftRepair::BeforeMessage(const raft_message& message) {
  raft* const raft = Raft();
  ForgetCoveredChange(raft);
  const raft_term term = TermOfLeader(message);
  if (term > leaders_term_) {
    leaders_term_ = term;
    same_ = 0;
  }
  if (term != 0 && term == leaders_term_) same_ = std::max(same_, SameAfter(*raft, message));
  if (message.type != RAFT_IO_APPEND_ENTRIES || raft->state == RAFT_UNAVAILABLE) return;
  const raft_index conflict = FirstConflict(*raft, message.append_entries);
  // What is committed does not go: libraft ends itself then.
  if (conflict <= raft->commit_index) return;
  if (LastChangeBefore(raft->log, LastIndex(raft->log) + 1) < conflict) return;

  raft_configuration earlier;
  raft_configuration_init(&earlier);
  raft_index index = LastChangeBefore(raft->log, conflict);
  const bool is_known = index != 0 ? DecodeConfiguration(EntryAt(raft->log, index)->buf, &earlier)
                                   : Copy(snapshot_, &earlier);
  if (index == 0) index = snapshot_index_;
  if (!is_known || index == 0) return raft_configuration_close(&earlier);
  raft_configuration_close(&raft->configuration);
  raft->configuration = earlier;
  raft->configuration_index = index;
  raft->configuration_uncommitted_index = 0;
}

bool RaftRepair::PermitsSnapshot() {
  const raft* const raft = Raft();
  if (raft->configuration_uncommitted_index > raft->last_applied) return false;
  if (change_index_ > raft->last_applied && EntryAt(raft->log, change_index_) != nullptr) {
    return false;
  }
  change_index_ = LastChangeBefore(raft->log, LastIndex(raft->log) + 1);
  return change_index_ <= raft->last_applied;
}

void RaftRepair::BeginTerm() {
  raft* const raft = Raft();
  if (raft->state != RAFT_LEADER) return;
  if (TermAt(raft->log, LastIndex(raft->log)) == raft->current_term) return;
  // An append that failed takes entries off a leader's log, and leaves their requests in its queue.
  if (is_first_queued_) return;
  first_.data = this;
  is_first_queued_ = true;
  const raft_barrier_cb ended = [](struct raft_barrier* first, int) {
    static_cast<RaftRepair*>(first->data)->is_first_queued_ = false;
  };
  // If there is no memory, the next tick tries again, and the first entry of whoever uses libraft
  // does the same.
  if (raft_barrier(raft, &first_, ended) != 0) is_first_queued_ = false;
}

int RaftRepair::BeginTermAlone() {
  raft* const raft = Raft();
  const raft_term term = raft->current_term + 1;
  int code = below_.set_term(io_, term);
  if (code != 0) return code;
  raft->current_term = term;
  raft->voted_for = 0;
  code = below_.set_vote(io_, raft->id);
  if (code == 0) raft->voted_for = raft->id;
  return code;
}

void RaftRepair::NoteAppend() {
  const raft* const raft = Raft();
  if (raft->state != RAFT_LEADER) return;
  appended_term_ = raft->current_term;
  appended_ = LastIndex(raft->log);
}

bool RaftRepair::HasLostAppend(unsigned added) const {
  const raft* const raft = Raft();
  return raft->state == RAFT_LEADER && raft->current_term == appended_term_ &&
         LastIndex(raft->log) < appended_ + added &&
         raft->configuration.n > 1;  // nobody else has it
}

void RaftRepair::Correct(raft_append_entries_result* result) const {
  if (result->rejected != 0) return;
  const raft_index same = result->term == leaders_term_ ? same_ : 0;
  result->last_log_index = std::min(result->last_log_index, same);
}

}  // namespace weft::embed
