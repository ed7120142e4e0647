#include "embed/raft/raft_remote_writes.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/raft/raft_log.h"
#include "embed/raft/raft_wire.h"
#include "weft/log.h"

namespace weft::embed {
namespace {

// Of a record, before the message and its payload, little-endian: a checksum of all behind it (4
// bytes), the length of the message (4), and of the payload (8), the record's position (8), and
// that behind the record before it (8). The position is there again, beside the stamp: else the
// stamp of a record that is being written, before the bytes of an older one, would look whole.
constexpr size_t kHeaderBytes = 32;

// Between two looks at a grant that a vote waits for, in microseconds: a few round trips.
constexpr uint64_t kLookUs = 1'000;
// Until the rest of what was written is taken, in microseconds: the next tick of the engine's
// timers, 66 us later at most. Not 0, so that some time passes, and others are heard.
constexpr uint64_t kRestUs = 1;
// How long a vote waits at most: libraft's election timeout, when its candidate asks again.
constexpr uint64_t kAwaitNs = 1'000'000'000;

bool HasChange(const raft_append_entries& entries) {
  return std::any_of(entries.entries, entries.entries + entries.n_entries,
                     [](const raft_entry& entry) { return entry.type == RAFT_CHANGE; });
}

bool HasChange(const wire::AppendEntries& entries) {
  return std::any_of(entries.entry_types().begin(), entries.entry_types().end(),
                     [](uint32_t type) { return type == RAFT_CHANGE; });
}

// To which the receiver goes, if it is higher than its own; 0: none.
raft_term TermOf(const raft_message& message) {
  switch (message.type) {
    case RAFT_IO_APPEND_ENTRIES:
      return message.append_entries.term;
    case RAFT_IO_APPEND_ENTRIES_RESULT:
      return message.append_entries_result.term;
    case RAFT_IO_REQUEST_VOTE:
      // Of the term to be: nobody goes there before it is asked for a vote.
      return message.request_vote.pre_vote ? 0 : message.request_vote.term;
    case RAFT_IO_REQUEST_VOTE_RESULT:
      return message.request_vote_result.term;
    case RAFT_IO_INSTALL_SNAPSHOT:
      return message.install_snapshot.term;
    case RAFT_IO_TIMEOUT_NOW:
      return ~raft_term{0};  // a candidacy
    default:
      return 0;
  }
}

}  // namespace

RaftRemoteWrites::RaftRemoteWrites(Engine& engine, raft_io* io, Options options,
                                   Function<void(raft_message*)> receive)
    : engine_(engine),
      io_(io),
      options_(std::move(options)),
      receive_(std::move(receive)),
      lost_(options_.memory_was_lost ? SecureRandom64() | 1 : 0),
      kept_(options_.memory_was_lost),
      look_(engine),
      rest_(engine) {}

RaftRemoteWrites::~RaftRemoteWrites() {
  rest_.Cancel();
  look_.Cancel();
  // Writes that end meanwhile look for their peer.
  for (auto& [id, peer] : peers_) {
    if (peer.writer != nullptr) given_up_writers_.emplace(id, std::move(peer.writer));
  }
  given_up_writers_.clear();
}

// --- what is known of the log --------------------------------------------------------------------

bool RaftRemoteWrites::Follows(raft_id leader, raft_term term) const {
  const struct raft* const r = raft();
  return r != nullptr && r->state == RAFT_FOLLOWER && r->current_term == term &&
         r->follower_state.current_leader.id == leader;
}

bool RaftRemoteWrites::LogHas(raft_index index, raft_term term) const {
  const raft_log& log = raft()->log;
  // What a snapshot covers is committed, and so in every leader's log.
  if (index == 0 || index < log.snapshot.last_index) return true;
  return term != 0 && TermAt(log, index) == term;
}

raft_index RaftRemoteWrites::Matched(raft_id leader, raft_term term) const {
  if (compared_.leader != leader || compared_.term != term) return 0;
  return std::min<raft_index>(compared_.index, raft()->last_stored);
}

void RaftRemoteWrites::NoteCompared(const Mark& mark) {
  if (mark.index == 0 || !Follows(mark.leader, mark.term)) return;
  if (!LogHas(mark.index, mark.index_term)) return;
  if (compared_.leader != mark.leader || compared_.term != mark.term) compared_ = mark;
  if (mark.index > compared_.index) compared_ = mark;
}

void RaftRemoteWrites::LookWhetherCaughtUp() {
  if (lost_ == 0 || log_end_.leader == 0) return;
  if (Matched(log_end_.leader, log_end_.term) < log_end_.index) return;
  lost_ = 0;
  WEFT_LOG(kInfo, "a member of a Raft group has the log of its leader up to entry ", log_end_.index,
           " again, and votes");
}

// --- sending -------------------------------------------------------------------------------------

void RaftRemoteWrites::Tell(const raft_message& message, wire::Message* encoded) {
  const raft_id to = message.server_id;
  if (lost_ != 0) encoded->mutable_remote_writes()->set_lost(lost_);
  if (grant_.has_value() && grant_->leader == to && !grant_->reader->given_up()) {
    wire::RemoteWrites* const said = encoded->mutable_remote_writes();
    if (std::exchange(grant_->owes_offer, false)) grant_->reader->Offer(said->mutable_offer());
    said->set_number(grant_->reader->number());
    said->set_term(grant_->term);
    said->set_taken(grant_->reader->taken());
    said->set_matched(Matched(to, grant_->term));
  }
  if (message.type != RAFT_IO_APPEND_ENTRIES) return;
  const raft_term term = message.append_entries.term;
  const auto found = options_.enabled ? peers_.try_emplace(to).first : peers_.find(to);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (peer.writer != nullptr && peer.term != term) GiveUpWriter(to, peer, "it was of another term");
  if (options_.enabled && peer.writer == nullptr) {
    peer.has_asked = true;
    encoded->mutable_remote_writes()->set_wanted(true);
    encoded->mutable_remote_writes()->set_last(peer.last_writer);
  }
  if (peer.lost != 0 && peer.lost_term == term) {
    encoded->mutable_remote_writes()->set_lost_heard(peer.lost);
    encoded->mutable_remote_writes()->set_log_end(peer.log_end);
  }
}

bool RaftRemoteWrites::Reserve(const raft_message& message, uint64_t bytes,
                               const wire::Message& encoded, wire::Ring::Place* place) {
  const auto found = peers_.find(message.server_id);
  if (found == peers_.end() || found->second.writer == nullptr) return false;
  Peer& peer = found->second;
  const raft_append_entries& entries = message.append_entries;
  if (peer.term != entries.term || entries.n_entries == 0 || HasChange(entries)) return false;
  const uint64_t from = peer.writer->head();
  const size_t message_bytes = encoded.ByteSizeLong();
  const MutableByteSpan to = peer.writer->Reserve(kHeaderBytes + message_bytes + bytes, place);
  if (to.empty()) {
    ++stats_.no_room;
    return false;
  }
  StoreLe32(to.data() + 4, static_cast<uint32_t>(message_bytes));
  StoreLe64(to.data() + 8, bytes);
  StoreLe64(to.data() + 16, place->position());
  StoreLe64(to.data() + 24, from);
  encoded.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(to.data() + kHeaderBytes));
  CopyPayload(message, reinterpret_cast<char*>(to.data() + kHeaderBytes + message_bytes));
  StoreLe32(to.data(), Crc32c(to.subspan(4)));
  peer.pending.push_back(
      {place->position(), entries.prev_log_index, entries.prev_log_index + entries.n_entries});
  return true;
}

absl::Status RaftRemoteWrites::Write(raft_id to, Channel& channel, const wire::Ring::Place& place,
                                     Function<void(const absl::Status&)> ended) {
  Peer& peer = peers_[to];
  if (peer.writer != nullptr && peer.writer->incarnation() != channel.peer_incarnation()) {
    GiveUpWriter(to, peer, "the member was started again");
  }
  auto then = [this, to, number = place.number(), position = place.position(),
               ended = std::move(ended)](const absl::Status& status) mutable {
    ended(status);
    const auto found = peers_.find(to);
    if (found == peers_.end() || found->second.writer == nullptr ||
        found->second.writer->number() != number) {
      return;
    }
    Peer& written = found->second;
    if (!status.ok()) return GiveUpWriter(to, written, ToStd(status.message()));
    for (Pending& each : written.pending) {
      if (each.position == position) each.written = true;
    }
    Advance(to, written);
  };
  if (peer.writer == nullptr || peer.writer->number() != place.number() ||
      !peer.writer->WriteAcknowledged(place, std::move(then))) {
    return absl::UnavailableError(
        StrCat("the ring of member ", to, " was given up; libraft sends it again"));
  }
  ++stats_.written;
  return absl::OkStatus();
}

void RaftRemoteWrites::OnFailed(raft_id to, const wire::Ring::Place& place) {
  const auto found = peers_.find(to);
  if (found == peers_.end() || found->second.writer == nullptr ||
      found->second.writer->number() != place.number()) {
    return;
  }
  GiveUpWriter(to, found->second, "a record was not written");
}

bool RaftRemoteWrites::MustFail(raft_id to) const {
  const auto found = peers_.find(to);
  return found != peers_.end() && found->second.must_fail;
}

void RaftRemoteWrites::NoteFailed(raft_id to) {
  if (const auto found = peers_.find(to); found != peers_.end()) found->second.must_fail = false;
}

void RaftRemoteWrites::GiveUpWriter(raft_id id, Peer& peer, std::string_view why) {
  if (peer.writer == nullptr) return;
  ++stats_.given_up;
  WEFT_LOG_EVERY_N_SEC(kInfo, 1, "no remote writes to member ", id, " of a Raft group now: ", why);
  given_up_writers_.emplace(id, std::move(peer.writer));
  peer.pending.clear();
  peer.known = 0;
}

void RaftRemoteWrites::Advance(raft_id id, Peer& peer) {
  const raft_index before = peer.known;
  while (!peer.pending.empty()) {
    const Pending& first = peer.pending.front();
    if (!first.written || first.before > peer.known) break;
    peer.known = std::max(peer.known, first.last);
    peer.pending.pop_front();
    ++stats_.acknowledged;
  }
  if (peer.known == before) return;
  peer.claimed_term = peer.term;
  // libraft may send from inside of this, and so change the peer.
  const std::string address = peer.address;
  raft_message result = {};
  result.type = RAFT_IO_APPEND_ENTRIES_RESULT;
  result.server_id = id;
  result.server_address = address.c_str();
  result.append_entries_result = {peer.term, 0, peer.known};
  receive_(&result);
}

// --- what peers say ------------------------------------------------------------------------------

absl::Status RaftRemoteWrites::Hear(const wire::Message& message, uint64_t incarnation,
                                    Channel* channel, bool is_member) {
  if (!message.has_remote_writes() || !is_member || raft() == nullptr) return absl::OkStatus();
  const wire::RemoteWrites& said = message.remote_writes();
  const raft_id id = message.from();
  if (message.has_append_entries()) {
    HearLogEnd(message);
    if (options_.enabled && said.wanted()) {
      asked_ = {id, message.append_entries().term(), said.last()};
    }
  }
  Peer& peer = peers_[id];
  peer.address = message.from_address();
  if (said.lost() != 0) HearLost(peer, id, said.lost(), incarnation);
  if (said.has_offer() && channel != nullptr) HearOffer(peer, id, said, incarnation, *channel);
  if (peer.writer == nullptr || said.number() != peer.writer->number() ||
      incarnation != peer.writer->incarnation()) {
    return absl::OkStatus();
  }
  absl::Status acknowledged = peer.writer->Acknowledge(said.taken());
  if (!acknowledged.ok()) {
    GiveUpWriter(id, peer, ToStd(acknowledged.message()));
    return acknowledged;
  }
  if (said.term() != peer.term || said.matched() <= peer.known) return absl::OkStatus();
  peer.known = std::min<raft_index>(said.matched(), LastIndex(raft()->log));
  Advance(id, peer);
  return absl::OkStatus();
}

void RaftRemoteWrites::HearLost(Peer& peer, raft_id id, uint64_t question, uint64_t incarnation) {
  // What is written into the old process's memory from now on counts for nothing.
  if (peer.writer != nullptr && peer.writer->incarnation() != incarnation) {
    GiveUpWriter(id, peer, "the member was started again");
  }
  if (raft()->state != RAFT_LEADER) return;
  if (peer.lost == question && peer.lost_term == raft()->current_term) return;
  peer.lost = question;
  peer.lost_term = raft()->current_term;
  peer.log_end = LastIndex(raft()->log);
  // libraft takes no refusal for true of what it holds for acknowledged, until a message fails.
  // Where it was told of nothing but the disk's, it has to find out by itself: a new leader that
  // meets a failure first sends a snapshot, which a member with a later one never gets beyond.
  peer.must_fail = peer.claimed_term == raft()->current_term;
}

void RaftRemoteWrites::HearLogEnd(const wire::Message& message) {
  const wire::RemoteWrites& said = message.remote_writes();
  const raft_term term = message.append_entries().term();
  if (lost_ == 0 || said.lost_heard() != lost_ || term < log_end_.term) return;
  log_end_ = {message.from(), term, said.log_end(), 0};
}

void RaftRemoteWrites::HearOffer(Peer& peer, raft_id id, const wire::RemoteWrites& said,
                                 uint64_t incarnation, Channel& channel) {
  if (!options_.enabled || said.offer().number() == peer.last_writer) return;
  if (raft()->state != RAFT_LEADER || said.term() != raft()->current_term) return;
  GiveUpWriter(id, peer, "the member has another ring");
  const uint64_t now_ns = engine_.clock().NowNs();
  // A member grants one in kPauseNs, by its own clock; half of it leaves room for what comes late.
  const bool is_early =
      peer.writer_since_ns != 0 && now_ns - peer.writer_since_ns < RaftRings::kPauseNs / 2;
  if (!peer.has_asked || is_early || given_up_writers_.count(id) >= RaftRings::kMaxGivenUp) return;
  peer.writer_since_ns = now_ns;
  auto writer = RaftRingWriter::Make(channel, said.offer(), incarnation, options_.ring_bytes);
  if (!writer.ok()) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 30, "a ring of a member of a Raft group at ", channel.address(),
                         " cannot be used: ", writer.status().message());
    return;
  }
  peer.writer = *std::move(writer);
  peer.term = said.term();
  peer.last_writer = said.offer().number();
  peer.has_asked = false;
  peer.known = 0;
}

// --- the grant -----------------------------------------------------------------------------------

bool RaftRemoteWrites::Look(Record* record) {
  RaftRingReader& reader = *grant_->reader;
  for (const uint64_t position : {reader.taken(), reader.NextRound()}) {
    const MutableByteSpan there = reader.Look(position);
    if (there.size() < kHeaderBytes) continue;
    const uint32_t checksum = LoadLe32(there.data());
    const uint64_t message_bytes = LoadLe32(there.data() + 4);
    const uint64_t payload_bytes = LoadLe64(there.data() + 8);
    const uint64_t rest = there.size() - kHeaderBytes;
    if (LoadLe64(there.data() + 16) != position || LoadLe64(there.data() + 24) != reader.taken() ||
        message_bytes > kMaxPlacedBytes || payload_bytes > rest ||
        message_bytes > rest - payload_bytes) {
      continue;
    }
    const uint64_t bytes = kHeaderBytes + message_bytes + payload_bytes;
    if (Crc32c(there.subspan(4, bytes - 4)) != checksum) continue;  // it is being written
    std::byte* const message_at = there.data() + kHeaderBytes;
    // Of a copy: the peer may still change the ring while it is parsed.
    const std::string message(reinterpret_cast<const char*>(message_at), message_bytes);
    const bool parsed = record->message.ParseFromString(message);
    const wire::AppendEntries& entries = record->message.append_entries();
    const absl::StatusOr<uint64_t> told = PayloadBytes(record->message);
    if (!parsed || record->message.from() != grant_->leader || entries.term() != grant_->term ||
        entries.entry_bytes_size() == 0 ||
        entries.entry_terms_size() != entries.entry_bytes_size() || !told.ok() ||
        *told != payload_bytes || HasChange(entries)) {
      Refuse();
      return false;
    }
    record->position = position;
    record->bytes = bytes;
    record->payload = reinterpret_cast<char*>(message_at + message_bytes);
    return true;
  }
  return false;
}

void RaftRemoteWrites::Refuse() {
  if (!grant_->reader->given_up()) ++stats_.given_up;
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "member ", grant_->leader,
                       " of a Raft group has written what no leader writes");
  grant_->reader->GiveUp();
}

RaftRemoteWrites::Drained RaftRemoteWrites::Drain(uint64_t bytes) {
  if (draining_) return Drained::kStuck;  // libraft is on the stack
  const uint64_t end = grant_->reader->taken() + bytes;
  while (grant_->reader->taken() <= end) {
    Record record;
    if (!Look(&record)) return Drained::kAll;
    const wire::AppendEntries& entries = record.message.append_entries();
    const int count = entries.entry_bytes_size();
    const Mark last = {grant_->leader, grant_->term,
                       entries.prev_log_index() + static_cast<uint64_t>(count),
                       entries.entry_terms(count - 1)};
    if (!LogHas(last.index, last.index_term)) {
      if (!LogHas(entries.prev_log_index(), entries.prev_log_term())) return Drained::kWaits;
      const struct raft* const r = raft();
      if (r->state != RAFT_FOLLOWER || r->current_term != grant_->term) return Drained::kStuck;
      HearLogEnd(record.message);
      ReceivedMessage message;
      const absl::Status decoded = message.Decode(record.message, record.payload);
      if (absl::IsInvalidArgument(decoded)) {
        Refuse();
        return Drained::kAll;
      }
      if (!decoded.ok()) return Drained::kStuck;
      draining_ = true;
      receive_(message.Release());
      draining_ = false;
      if (!LogHas(last.index, last.index_term)) return Drained::kStuck;
    }
    ++stats_.taken;
    grant_->reader->Took(record.position, record.bytes);
    NoteCompared(last);
  }
  return Drained::kSome;
}

// At ticks and behind messages: takes part of what was written, or ends a grant that was given up.
void RaftRemoteWrites::TendGrant() {
  if (grant_.has_value() && grant_->reader->given_up()) {
    Leave();
  } else if (grant_.has_value() && Drain(kAtOnceBytes) == Drained::kSome) {
    // In a tick that makes a turn of the engine, in which the grant may end, as in Leave().
    rest_.Set(kRestUs, [this] { TendGrant(); });
  }
  LookWhetherCaughtUp();
}

// The grant ends, with all that was acknowledged in the log. False: not yet.
bool RaftRemoteWrites::Leave() {
  if (!grant_.has_value()) return true;
  if (!grant_->reader->given_up()) ++stats_.given_up;
  grant_->reader->GiveUp();
  // In a tick that makes a turn of the engine: a message in it may have ended the grant, and had
  // another one made.
  if (!grant_.has_value()) return true;
  if (!grant_->reader->given_up() || !grant_->reader->reclaimed()) return false;
  const Drained drained = Drain(options_.ring_bytes);  // which is all that can be there
  if (drained == Drained::kStuck || drained == Drained::kSome) return false;
  given_up_readers_.push_back(std::move(grant_->reader));
  grant_.reset();
  return true;
}

// The same, where the term cannot be left before: who is in the way of that loses its connection.
bool RaftRemoteWrites::LeaveTerm() {
  if (Leave()) return true;
  Grant& grant = *grant_;
  if (!grant.reader->given_up()) return false;  // another one: Leave() has the story
  if (grant.reader->reclaimed()) return false;  // libraft has not taken what there is
  const uint64_t now_ns = engine_.clock().NowNs();
  if (grant.left_ns == 0) grant.left_ns = now_ns;
  if (grant.closed || now_ns - grant.left_ns < kAnswerNs) return false;
  grant.closed = true;
  ++stats_.leaders_closed;
  WEFT_LOG_EVERY_N_SEC(kWarning, 1, "member ", grant.leader, " of a Raft group, which led in term ",
                       grant.term, ", has not given back the memory that it wrote into: its ",
                       "connection is closed");
  grant.reader->EndHolder();
  return false;
}

void RaftRemoteWrites::Keep(const raft_message& message) {
  if (message.type != RAFT_IO_REQUEST_VOTE && message.type != RAFT_IO_TIMEOUT_NOW) return;
  const bool looks = waiting_.has_value();
  waiting_ = {message, message.server_address != nullptr ? message.server_address : "",
              engine_.clock().NowNs()};
  if (!looks) look_.Set(kLookUs, [this] { LookAgain(); });
}

// Of a later term, or the word of this term's leader. Else another message has led out of the term
// meanwhile, and what there is of a grant is a new leader's.
bool RaftRemoteWrites::IsDue(const raft_message& message) const {
  const struct raft* const r = raft();
  if (r == nullptr) return false;
  return message.type == RAFT_IO_TIMEOUT_NOW ? message.timeout_now.term == r->current_term
                                             : TermOf(message) > r->current_term;
}

void RaftRemoteWrites::LookAgain() {
  if (engine_.clock().NowNs() - waiting_->since_ns > kAwaitNs || !IsDue(waiting_->message)) {
    return waiting_.reset();
  }
  const bool left = !draining_ && LeaveTerm();
  if (!waiting_.has_value()) return;  // libraft was closed by what it was handed
  if (!left) return look_.Set(kLookUs, [this] { LookAgain(); });
  Waiting waiting = *std::exchange(waiting_, std::nullopt);
  waiting.message.server_address = waiting.address.c_str();
  if (!BeforeMessage(waiting.message)) return;
  receive_(&waiting.message);
  AfterMessage();
}

void RaftRemoteWrites::ConsiderGrant() {
  if (!asked_.has_value()) return;
  const Asked asked = *asked_;
  asked_.reset();
  if (!Follows(asked.leader, asked.term) || compared_.leader != asked.leader ||
      compared_.term != asked.term) {
    return;
  }
  if (grant_.has_value() && !grant_->reader->given_up() && grant_->reader->number() != asked.last) {
    // It has not heard of it, or not when it asked.
    grant_->owes_offer = grant_->owes_offer || grant_->reader->taken() == 0;
    return;
  }
  const uint64_t now_ns = engine_.clock().NowNs();
  if (granted_ns_ != 0 && now_ns - granted_ns_ < RaftRings::kPauseNs) return;
  if (!Leave() || given_up_readers_.size() >= RaftRings::kMaxGivenUp) return;
  granted_ns_ = now_ns;
  if (!std::exchange(kept_, true)) {
    if (const absl::Status status = options_.keep(true); !status.ok()) {
      kept_ = false;
      WEFT_LOG_EVERY_N_SEC(kWarning, 30, "a member of a Raft group gives no memory for writes: ",
                           "that it did cannot be kept: ", status.message());
      return;
    }
  }
  auto reader = RaftRingReader::Make(engine_, options_.ring_bytes);
  if (!reader.ok()) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 1,
                         "no ring for a leader of a Raft group: ", reader.status().message());
    return;
  }
  grant_.emplace();
  grant_->leader = asked.leader;
  grant_->term = asked.term;
  grant_->reader = *std::move(reader);
  ++stats_.offered;
}

// --- around libraft ------------------------------------------------------------------------------

bool RaftRemoteWrites::BeforeMessage(const raft_message& message) {
  handing_ = {};
  const struct raft* const r = raft();
  if (r == nullptr) return true;
  if (draining_) return false;  // as one that is lost: libraft is on the stack
  if (r->state == RAFT_UNAVAILABLE) {
    // It takes nothing any more, and never votes again.
    if (grant_.has_value()) grant_->reader->GiveUp();
    return true;
  }
  if (lost_ != 0 && (message.type == RAFT_IO_REQUEST_VOTE || message.type == RAFT_IO_TIMEOUT_NOW)) {
    return false;
  }
  if (grant_.has_value()) Drain(options_.ring_bytes);
  // Who has a leader refuses to vote in libraft, and stays in the term: a member that was cut off,
  // or lies, does not take the leader's ring.
  if (message.type == RAFT_IO_REQUEST_VOTE && !message.request_vote.disrupt_leader &&
      r->state == RAFT_FOLLOWER && r->follower_state.current_leader.id != 0) {
    return true;
  }
  if (TermOf(message) > r->current_term && !LeaveTerm()) {
    Keep(message);
    return false;
  }
  if (message.type != RAFT_IO_APPEND_ENTRIES) return true;
  const raft_append_entries& entries = message.append_entries;
  const unsigned count = entries.n_entries;
  handing_ = {message.server_id, entries.term, entries.prev_log_index + count,
              count > 0 ? entries.entries[count - 1].term : entries.prev_log_term};
  return true;
}

void RaftRemoteWrites::AfterMessage() {
  if (raft() == nullptr || draining_) return;
  NoteCompared(std::exchange(handing_, {}));
  TendGrant();
  ConsiderGrant();
}

raft_time RaftRemoteWrites::BeforeTick(raft_time now) {
  const struct raft* const r = raft();
  if (r == nullptr) return now;
  // As if no time had passed: libraft is on the stack.
  if (draining_) return r->state == RAFT_FOLLOWER ? r->election_timer_start : now;
  TendGrant();
  // What a follower's tick does with the time is to become a candidate.
  if (r->state != RAFT_FOLLOWER) return now;
  const bool is_due =
      now - r->election_timer_start >= r->follower_state.randomized_election_timeout;
  return is_due && (lost_ != 0 || !LeaveTerm()) ? r->election_timer_start : now;
}

void RaftRemoteWrites::BeforeClose() {
  rest_.Cancel();
  look_.Cancel();
  waiting_.reset();
  bool has_all = lost_ == 0 && raft() != nullptr;
  if (grant_.has_value()) {
    grant_->reader->GiveUp();  // as in Leave()
    Record record;
    has_all = has_all && (!grant_.has_value() || (grant_->reader->given_up() &&
                                                  grant_->reader->reclaimed() && !Look(&record)));
  }
  if (!kept_ || !options_.keep || !has_all) return;
  if (raft()->last_stored != LastIndex(raft()->log)) return;
  if (const absl::Status status = options_.keep(false); !status.ok()) {
    WEFT_LOG(kWarning, "a member of a Raft group will wait for a leader when it is started again: ",
             status.message());
    return;
  }
  kept_ = false;
}

// --- outside of callbacks ------------------------------------------------------------------------

void RaftRemoteWrites::Tidy() {
  std::erase_if(given_up_writers_, [](const auto& each) { return each.second->idle(); });
  std::erase_if(given_up_readers_, [](const auto& each) { return each->reclaimed(); });
}

bool RaftRemoteWrites::Forget(raft_id id, const Channel& channel) {
  if (const auto found = peers_.find(id); found != peers_.end()) {
    GiveUpWriter(id, found->second, "the member is gone, or has moved");
    peers_.erase(found);
  }
  Tidy();
  return std::none_of(given_up_writers_.begin(), given_up_writers_.end(),
                      [&channel](const auto& each) { return &each.second->channel() == &channel; });
}

RaftRings::Stats RaftRemoteWrites::stats() const {
  RaftRings::Stats stats = stats_;
  for (const auto& [id, writer] : given_up_writers_) stats.writing += writer->writing();
  for (const auto& [id, peer] : peers_) {
    if (peer.writer != nullptr) stats.writing += peer.writer->writing();
  }
  return stats;
}

}  // namespace weft::embed
