#include "embed/raft/raft_wire.h"

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "core/strings.h"

namespace weft::embed {
namespace {

// The first byte of an encoded configuration.
constexpr uint8_t kEncoding = 1;

absl::Status Invalid(std::string_view what) {
  return absl::InvalidArgumentError(StrCat("not a message of a Raft group: ", what));
}

absl::Status NoMemory(uint64_t bytes) {
  return absl::ResourceExhaustedError(
      StrCat("libraft's allocator has no ", bytes, " bytes for a message"));
}

// Calls `use` with each piece of the payload.
template <class Use>
void ForEachPiece(const raft_message& message, Use use) {
  if (message.type == RAFT_IO_APPEND_ENTRIES) {
    for (unsigned i = 0; i < message.append_entries.n_entries; ++i) {
      use(message.append_entries.entries[i].buf);
    }
  } else if (message.type == RAFT_IO_INSTALL_SNAPSHOT) {
    use(message.install_snapshot.data);
  }
}

void Encode(const raft_append_entries& from, wire::AppendEntries* to) {
  to->set_term(from.term);
  to->set_prev_log_index(from.prev_log_index);
  to->set_prev_log_term(from.prev_log_term);
  to->set_leader_commit(from.leader_commit);
  for (unsigned i = 0; i < from.n_entries; ++i) {
    to->add_entry_terms(from.entries[i].term);
    to->add_entry_types(from.entries[i].type);
    to->add_entry_bytes(from.entries[i].buf.len);
  }
}

void Encode(const raft_install_snapshot& from, wire::InstallSnapshot* to) {
  to->set_term(from.term);
  to->set_last_index(from.last_index);
  to->set_last_term(from.last_term);
  to->set_configuration_index(from.conf_index);
  for (unsigned i = 0; i < from.conf.n; ++i) {
    wire::Server* const server = to->add_configuration();
    server->set_id(from.conf.servers[i].id);
    server->set_address(from.conf.servers[i].address);
    server->set_role(static_cast<uint32_t>(from.conf.servers[i].role));
  }
  to->set_data_bytes(from.data.len);
}

void Encode(const raft_request_vote& from, wire::RequestVote* to) {
  to->set_term(from.term);
  to->set_candidate_id(from.candidate_id);
  to->set_last_log_index(from.last_log_index);
  to->set_last_log_term(from.last_log_term);
  to->set_disrupt_leader(from.disrupt_leader);
  to->set_pre_vote(from.pre_vote);
}

void Encode(const raft_request_vote_result& from, wire::RequestVoteResult* to) {
  to->set_term(from.term);
  to->set_vote_granted(from.vote_granted);
  if (from.pre_vote != raft_tribool_unknown) to->set_pre_vote(from.pre_vote == raft_tribool_true);
}

// A sum of lengths that a peer has told; false: it is no size.
bool AddTo(uint64_t bytes, uint64_t* sum) {
  constexpr uint64_t kMost = std::numeric_limits<ptrdiff_t>::max();
  if (bytes > kMost - *sum) return false;
  *sum += bytes;
  return true;
}

}  // namespace

absl::Status EncodeRaftMessage(const raft_message& message, raft_id from,
                               std::string_view from_address, wire::Message* encoded) {
  encoded->set_from(from);
  encoded->set_from_address(std::string(from_address));
  switch (message.type) {
    case RAFT_IO_APPEND_ENTRIES:
      if (message.append_entries.n_entries > kMaxEntries) return Invalid("too many entries");
      Encode(message.append_entries, encoded->mutable_append_entries());
      return absl::OkStatus();
    case RAFT_IO_APPEND_ENTRIES_RESULT: {
      wire::AppendEntriesResult* const to = encoded->mutable_append_entries_result();
      to->set_term(message.append_entries_result.term);
      to->set_rejected(message.append_entries_result.rejected);
      to->set_last_log_index(message.append_entries_result.last_log_index);
      return absl::OkStatus();
    }
    case RAFT_IO_REQUEST_VOTE:
      Encode(message.request_vote, encoded->mutable_request_vote());
      return absl::OkStatus();
    case RAFT_IO_REQUEST_VOTE_RESULT:
      Encode(message.request_vote_result, encoded->mutable_request_vote_result());
      return absl::OkStatus();
    case RAFT_IO_INSTALL_SNAPSHOT:
      if (message.install_snapshot.conf.n > kMaxServers) return Invalid("too many servers");
      Encode(message.install_snapshot, encoded->mutable_install_snapshot());
      return absl::OkStatus();
    case RAFT_IO_TIMEOUT_NOW: {
      wire::TimeoutNow* const to = encoded->mutable_timeout_now();
      to->set_term(message.timeout_now.term);
      to->set_last_log_index(message.timeout_now.last_log_index);
      to->set_last_log_term(message.timeout_now.last_log_term);
      return absl::OkStatus();
    }
    default:
      return Invalid(StrCat("libraft's kind ", message.type, " is unknown here"));
  }
}

uint64_t PayloadBytes(const raft_message& message) {
  uint64_t bytes = 0;
  ForEachPiece(message, [&bytes](const raft_buffer& piece) { bytes += piece.len; });
  return bytes;
}

absl::StatusOr<uint64_t> PayloadBytes(const wire::Message& encoded) {
  uint64_t sum = 0;
  if (encoded.has_install_snapshot()) {
    if (!AddTo(encoded.install_snapshot().data_bytes(), &sum))
      return Invalid("its snapshot's length");
  }
  if (encoded.has_append_entries()) {
    for (const uint64_t bytes : encoded.append_entries().entry_bytes()) {
      if (!AddTo(bytes, &sum)) return Invalid("the lengths of its entries");
    }
  }
  return sum;
}

absl::Cord GatherPayload(const raft_message& message) {
  absl::Cord payload;
  ForEachPiece(message, [&payload](const raft_buffer& piece) {
    if (piece.len == 0) return;
    payload.Append(absl::MakeCordFromExternal(
        ToAbsl({static_cast<const char*>(piece.base), piece.len}), [] {}));
  });
  return payload;
}

void CopyPayload(const raft_message& message, char* to) {
  ForEachPiece(message, [&to](const raft_buffer& piece) {
    if (piece.len == 0) return;
    std::memcpy(to, piece.base, piece.len);
    to += piece.len;
  });
}

raft_term TermOfLeader(const raft_message& message) {
  if (message.type == RAFT_IO_INSTALL_SNAPSHOT) return message.install_snapshot.term;
  return message.type == RAFT_IO_APPEND_ENTRIES ? message.append_entries.term : 0;
}

// Its encoding, a count, and of each member its id, its address with a zero behind it, and its
// role; numbers are little-endian, of 8 bytes, the role is of one.
bool DecodeConfiguration(const raft_buffer& bytes, raft_configuration* to, size_t* behind) {
  std::string_view rest(static_cast<const char*>(bytes.base), bytes.len);
  const auto take = [&rest](size_t size, uint64_t* value) {
    if (rest.size() < size) return false;
    *value = 0;
    for (size_t i = 0; i < size; ++i) {
      *value |= uint64_t{static_cast<uint8_t>(rest[i])} << (8 * i);
    }
    rest.remove_prefix(size);
    return true;
  };
  uint64_t encoding = 0;
  uint64_t count = 0;
  if (!take(1, &encoding) || encoding != kEncoding || !take(8, &count)) return false;
  if (count == 0 || count > kMaxServers) return false;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t id = 0;
    uint64_t role = 0;
    if (!take(8, &id) || id == 0) return false;
    const size_t end = rest.find('\0');
    if (end == std::string_view::npos || end > kMaxRaftAddressBytes) return false;
    const char* const address = rest.data();
    rest.remove_prefix(end + 1);
    if (!take(1, &role)) return false;
    if (raft_configuration_add(to, id, address, static_cast<int>(role)) != 0) return false;
  }
  if (behind != nullptr) *behind = rest.size();
  return true;
}

absl::Status CheckChanges(const raft_message& message) {
  if (message.type != RAFT_IO_APPEND_ENTRIES) return absl::OkStatus();
  for (unsigned i = 0; i < message.append_entries.n_entries; ++i) {
    const raft_entry& entry = message.append_entries.entries[i];
    if (entry.type != RAFT_CHANGE) continue;
    raft_configuration configuration;
    raft_configuration_init(&configuration);
    const bool decoded = DecodeConfiguration(entry.buf, &configuration);
    raft_configuration_close(&configuration);
    if (!decoded) return Invalid("a change of members that names none, or too many");
  }
  return absl::OkStatus();
}

void DiscardReceived(raft_message* message) {
  if (message->type == RAFT_IO_APPEND_ENTRIES) {
    raft_append_entries& from = message->append_entries;
    if (from.n_entries > 0) raft_free(from.entries[0].batch);
    raft_free(from.entries);
  } else if (message->type == RAFT_IO_INSTALL_SNAPSHOT) {
    raft_configuration_close(&message->install_snapshot.conf);
    raft_free(message->install_snapshot.data.base);
  }
}

ReceivedMessage::~ReceivedMessage() {
  if (!owns_) return;
  if (message_.type == RAFT_IO_APPEND_ENTRIES) raft_free(message_.append_entries.entries);
  if (message_.type == RAFT_IO_INSTALL_SNAPSHOT) {
    raft_configuration_close(&message_.install_snapshot.conf);
  }
  raft_free(payload_);
}

absl::Status ReceivedMessage::Decode(const wire::Message& encoded, char* in_place) {
  if (encoded.from() == 0) return Invalid("its sender is 0");
  if (encoded.from_address().size() > kMaxRaftAddressBytes ||
      encoded.from_address().find('\0') != std::string::npos) {
    return Invalid("its sender's address");
  }
  message_.server_id = encoded.from();
  message_.server_address = encoded.from_address().c_str();
  switch (encoded.kind_case()) {
    case wire::Message::kAppendEntries:
      return DecodeEntries(encoded.append_entries(), in_place);
    case wire::Message::kAppendEntriesResult: {
      const wire::AppendEntriesResult& from = encoded.append_entries_result();
      message_.type = RAFT_IO_APPEND_ENTRIES_RESULT;
      message_.append_entries_result = {from.term(), from.rejected(), from.last_log_index()};
      return absl::OkStatus();
    }
    case wire::Message::kRequestVote: {
      const wire::RequestVote& from = encoded.request_vote();
      // libraft answers the candidate, and records a vote for it.
      if (from.candidate_id() != encoded.from()) return Invalid("a candidate of another's name");
      message_.type = RAFT_IO_REQUEST_VOTE;
      message_.request_vote = {from.term(),          from.candidate_id(),   from.last_log_index(),
                               from.last_log_term(), from.disrupt_leader(), from.pre_vote()};
      return absl::OkStatus();
    }
    case wire::Message::kRequestVoteResult: {
      const wire::RequestVoteResult& from = encoded.request_vote_result();
      message_.type = RAFT_IO_REQUEST_VOTE_RESULT;
      message_.request_vote_result = {
          from.term(), from.vote_granted(),
          !from.has_pre_vote() ? raft_tribool_unknown : TO_RAFT_TRIBOOL(from.pre_vote())};
      return absl::OkStatus();
    }
    case wire::Message::kInstallSnapshot:
      return DecodeSnapshot(encoded.install_snapshot());
    case wire::Message::kTimeoutNow: {
      const wire::TimeoutNow& from = encoded.timeout_now();
      message_.type = RAFT_IO_TIMEOUT_NOW;
      message_.timeout_now = {from.term(), from.last_log_index(), from.last_log_term()};
      return absl::OkStatus();
    }
    case wire::Message::KIND_NOT_SET:
      break;
  }
  return Invalid("its kind is unknown");
}

absl::Status ReceivedMessage::DecodeEntries(const wire::AppendEntries& from, char* in_place) {
  const auto count = static_cast<size_t>(from.entry_bytes_size());
  if (count > kMaxEntries) return Invalid("too many entries");
  if (static_cast<size_t>(from.entry_terms_size()) != count ||
      static_cast<size_t>(from.entry_types_size()) != count) {
    return Invalid("terms, types and lengths of entries are not as many");
  }
  uint64_t sum = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t type = from.entry_types(static_cast<int>(i));
    if (type != RAFT_COMMAND && type != RAFT_BARRIER && type != RAFT_CHANGE) {
      return Invalid("the type of an entry");
    }
    if (from.entry_terms(static_cast<int>(i)) == 0) return Invalid("an entry of term 0");
    if (!AddTo(from.entry_bytes(static_cast<int>(i)), &sum)) return Invalid("lengths of entries");
  }
  raft_append_entries& to = message_.append_entries;
  to = {from.term(), from.prev_log_index(), from.prev_log_term(), from.leader_commit(), nullptr, 0};
  message_.type = RAFT_IO_APPEND_ENTRIES;
  if (count == 0) return absl::OkStatus();
  // libraft frees the batch by its first entry: it has to be there also where all are empty.
  payload_ = static_cast<char*>(raft_malloc(sum > 0 && in_place == nullptr ? sum : 1));
  to.entries = static_cast<raft_entry*>(raft_calloc(count, sizeof(raft_entry)));
  owns_ = true;
  if (payload_ == nullptr || to.entries == nullptr) return NoMemory(sum);
  payload_bytes_ = sum;
  char* at = in_place != nullptr ? in_place : payload_;
  for (size_t i = 0; i < count; ++i) {
    const auto place = static_cast<int>(i);
    to.entries[i] = {from.entry_terms(place),
                     static_cast<unsigned short>(from.entry_types(place)),
                     {at, from.entry_bytes(place)},
                     payload_};
    at += from.entry_bytes(place);
  }
  to.n_entries = static_cast<unsigned>(count);
  return absl::OkStatus();
}

absl::Status ReceivedMessage::DecodeSnapshot(const wire::InstallSnapshot& from) {
  uint64_t sum = 0;
  if (!AddTo(from.data_bytes(), &sum)) return Invalid("its snapshot's length");
  if (from.last_index() == 0 || from.configuration().empty()) {
    return Invalid("a snapshot of no entry, or without members");
  }
  if (static_cast<size_t>(from.configuration_size()) > kMaxServers)
    return Invalid("too many servers");
  raft_install_snapshot& to = message_.install_snapshot;
  message_.type = RAFT_IO_INSTALL_SNAPSHOT;
  to.term = from.term();
  to.last_index = from.last_index();
  to.last_term = from.last_term();
  to.conf_index = from.configuration_index();
  raft_configuration_init(&to.conf);
  owns_ = true;
  for (const wire::Server& server : from.configuration()) {
    if (server.id() == 0 || server.address().size() > kMaxRaftAddressBytes ||
        server.address().find('\0') != std::string::npos) {
      return Invalid("a server of its configuration");
    }
    switch (raft_configuration_add(&to.conf, server.id(), server.address().c_str(),
                                   static_cast<int>(server.role()))) {
      case 0:
        break;
      case RAFT_NOMEM:
        return NoMemory(sizeof(raft_server));
      default:
        return Invalid("a server of its configuration");
    }
  }
  payload_ = static_cast<char*>(raft_malloc(sum > 0 ? sum : 1));
  if (payload_ == nullptr) return NoMemory(sum);
  payload_bytes_ = sum;
  to.data = {payload_, sum};
  return absl::OkStatus();
}

raft_message* ReceivedMessage::Release() {
  owns_ = false;
  return &message_;
}

}  // namespace weft::embed
