#include "embed/raft/raft_repair.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "embed/raft/raft_log.h"

namespace weft::embed {
namespace {

// The first byte of an encoded configuration.
constexpr uint8_t kEncoding = 1;
// Of bytes: libraft makes a configuration's a multiple of it, and a barrier of as many.
constexpr size_t kWord = 8;

// --- the log -------------------------------------------------------------------------------------

// The last change of members in the log that is below `end`; 0: none.
raft_index LastChangeBefore(const raft_log& log, raft_index end) {
  for (raft_index index = end - 1; index > log.offset; --index) {
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

raft_term TermOfLeader(const raft_message& message) {
  if (message.type == RAFT_IO_INSTALL_SNAPSHOT) return message.install_snapshot.term;
  return message.type == RAFT_IO_APPEND_ENTRIES ? message.append_entries.term : 0;
}

// --- configurations ------------------------------------------------------------------------------

// Of an entry: its encoding, a count, and of each member its id, its address with a zero behind it,
// and its role; numbers are little-endian, of 8 bytes, the role is of one. `behind`: the bytes that
// follow: libraft leaves as many as make it a multiple of kWord.
bool Decode(const raft_buffer& buffer, raft_configuration* to, size_t* behind = nullptr) {
  std::string_view rest(static_cast<const char*>(buffer.base), buffer.len);
  const auto take = [&rest](size_t bytes, uint64_t* value) {
    if (rest.size() < bytes) return false;
    *value = 0;
    for (size_t i = 0; i < bytes; ++i) {
      *value |= uint64_t{static_cast<uint8_t>(rest[i])} << (8 * i);
    }
    rest.remove_prefix(bytes);
    return true;
  };
  uint64_t encoding = 0;
  uint64_t count = 0;
  if (!take(1, &encoding) || encoding != kEncoding || !take(8, &count)) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t id = 0;
    uint64_t role = 0;
    if (!take(8, &id)) return false;
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos) return false;
    const char* const address = rest.data();
    rest.remove_prefix(end + 1);
    if (!take(1, &role)) return false;
    if (raft_configuration_add(to, id, address, static_cast<int>(role)) != 0) return false;
  }
  if (behind != nullptr) *behind = rest.size();
  return true;
}

// Those at its end, if they are no more than what libraft 0.15 leaves: more than that has been
// written, by a later release say, and means something to other members.
size_t UnwrittenBytes(const raft_entry& entry) {
  if (entry.type == RAFT_BARRIER) return entry.buf.len <= kWord ? entry.buf.len : 0;
  if (entry.type != RAFT_CHANGE) return 0;
  size_t behind = 0;
  raft_configuration configuration;
  raft_configuration_init(&configuration);
  const bool decoded = Decode(entry.buf, &configuration, &behind);
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

}  // namespace

RaftRepair::RaftRepair() { raft_configuration_init(&snapshot_); }

RaftRepair::~RaftRepair() { raft_configuration_close(&snapshot_); }

void RaftRepair::KeepSnapshot(const raft_snapshot& snapshot) {
  raft_configuration_close(&snapshot_);
  raft_configuration_init(&snapshot_);
  snapshot_index_ = Copy(snapshot.configuration, &snapshot_) ? snapshot.configuration_index : 0;
}

void RaftRepair::BeforeMessage(raft* raft, const raft_message& message) {
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
  const bool is_known =
      index != 0 ? Decode(EntryAt(raft->log, index)->buf, &earlier) : Copy(snapshot_, &earlier);
  if (index == 0) index = snapshot_index_;
  if (!is_known || index == 0) return raft_configuration_close(&earlier);
  raft_configuration_close(&raft->configuration);
  raft->configuration = earlier;
  raft->configuration_index = index;
  raft->configuration_uncommitted_index = 0;
}

bool RaftRepair::PermitSnapshot(const raft* raft) {
  if (raft->configuration_uncommitted_index > raft->last_applied) return false;
  if (change_index_ > raft->last_applied && EntryAt(raft->log, change_index_) != nullptr) {
    return false;
  }
  change_index_ = LastChangeBefore(raft->log, LastIndex(raft->log) + 1);
  return change_index_ <= raft->last_applied;
}

raft_message RaftRepair::Correct(const raft_message& message) const {
  raft_message correct = message;
  if (message.type != RAFT_IO_APPEND_ENTRIES_RESULT) return correct;
  raft_append_entries_result& result = correct.append_entries_result;
  if (result.rejected != 0) return correct;
  const raft_index same = result.term == leaders_term_ ? same_ : 0;
  result.last_log_index = std::min(result.last_log_index, same);
  return correct;
}

void RaftRepair::AfterFailedWrite(raft* raft) {
  // The union's member that libraft is about to take for the valid one. Where the candidate stays
  // one, its list of votes is beside it.
  if (raft->state == RAFT_CANDIDATE) raft->follower_state.current_leader.address = nullptr;
}

void RaftRepair::ClearUnwritten(const raft_entry* entries, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const raft_buffer& bytes = entries[i].buf;
    const size_t unwritten = UnwrittenBytes(entries[i]);
    if (unwritten == 0) continue;
    std::memset(static_cast<char*>(bytes.base) + (bytes.len - unwritten), 0, unwritten);
  }
}

}  // namespace weft::embed
