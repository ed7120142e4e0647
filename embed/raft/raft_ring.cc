#include "embed/raft/raft_ring.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/bytes.h"
#include "core/check.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/raft/raft_wire.h"
#include "weft/log.h"

namespace weft::embed {
namespace {

constexpr uint64_t kStampBytes = 16;

using Stamp = std::array<std::byte, kStampBytes>;

Stamp StampOf(uint64_t number, uint64_t position) {
  Stamp stamp;
  StoreLe64(stamp.data(), number);
  StoreLe64(stamp.data() + 8, position);
  return stamp;
}

uint64_t RecordBytes(uint64_t payload) {
  return kStampBytes + (payload + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
}

// Of a record's payload: it fits into an empty ring, wherever that stands.
uint64_t MostPayload(uint64_t ring_bytes) { return ring_bytes / 2 - kStampBytes; }

}  // namespace

// --- the reader ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RaftRingReader>> RaftRingReader::Make(Engine& engine,
                                                                     uint64_t bytes) {
  WEFT_CHECK(IsRingSize(bytes));  // User: RaftNetworkOptions::ring_bytes was looked at before
  // Reads prove writes, on verbs: RemoteMemory::WriteAcknowledged().
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<ExportedMemory> memory,
                        ExportedMemory::Allocate(engine, bytes, {.rights = kMayRead | kMayWrite}));
  // 0 means none.
  return std::unique_ptr<RaftRingReader>(
      new RaftRingReader(SecureRandom64() | 1, std::move(memory)));
}

void RaftRingReader::Offer(wire::Ring::Offer* offer) const {
  offer->set_number(number_);
  memory_->handle(offer->mutable_memory());
}

absl::StatusOr<char*> RaftRingReader::Take(const wire::Ring::Place& place, uint64_t bytes) {
  if (given_up_ || place.number() != number_) {
    return absl::FailedPreconditionError("a record in a ring that was given up");
  }
  const MutableByteSpan ring = memory_->bytes();
  const uint64_t position = place.position();
  // The first keeps the sums below from overflowing.
  if (bytes > MostPayload(ring.size()) || position % kRingAlignment != 0) {
    return absl::InvalidArgumentError(StrCat("a record of ", bytes, " bytes at ", position,
                                             " in a ring of ", ring.size(), ", of which ", taken_,
                                             " were taken"));
  }
  if (position < taken_) {
    return absl::FailedPreconditionError(StrCat("a record of ", bytes, " bytes at ", position,
                                                " of a ring, after all up to ", taken_,
                                                " was taken: its message was overtaken"));
  }
  const uint64_t ahead = position - taken_;
  const uint64_t offset = position % ring.size();
  const uint64_t record = RecordBytes(bytes);
  if (ahead > ring.size() || record > ring.size() - ahead || record > ring.size() - offset) {
    return absl::InvalidArgumentError(StrCat("a record of ", bytes, " bytes at ", position,
                                             " leaves its ring of ", ring.size(),
                                             " bytes, of which ", taken_, " were taken"));
  }
  const MutableByteSpan there = ring.subspan(offset, kStampBytes + bytes);
  const Stamp stamp = StampOf(number_, position);
  if (std::memcmp(there.data(), stamp.data(), kStampBytes) != 0 ||
      Crc32c(there) != place.crc32c()) {
    return absl::DataLossError(StrCat(
        "the record of ", bytes, " bytes at ", position,
        " of a ring is not there, or not whole: it was not written, or its connection ended"));
  }
  taken_ = position + record;
  return reinterpret_cast<char*>(there.data() + kStampBytes);
}

MutableByteSpan RaftRingReader::Look(uint64_t position) const {
  const MutableByteSpan ring = memory_->bytes();
  const uint64_t offset = position % ring.size();
  const Stamp stamp = StampOf(number_, position);
  if (std::memcmp(ring.data() + offset, stamp.data(), kStampBytes) != 0) return {};
  const uint64_t rest = ring.size() - offset - kStampBytes;
  return ring.subspan(offset + kStampBytes, std::min(rest, MostPayload(ring.size())));
}

uint64_t RaftRingReader::NextRound() const {
  const uint64_t bytes = memory_->bytes().size();
  return taken_ - taken_ % bytes + bytes;
}

void RaftRingReader::Took(uint64_t position, uint64_t bytes) {
  taken_ = position + RecordBytes(bytes);
}

void RaftRingReader::GiveUp() {
  if (std::exchange(given_up_, true)) return;
  memory_->Revoke(/*grace_us=*/0, /*wait_us=*/0);
}

// --- the writer ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<RaftRingWriter>> RaftRingWriter::Make(Channel& channel,
                                                                     const wire::Ring::Offer& offer,
                                                                     uint64_t incarnation,
                                                                     uint64_t most_bytes) {
  RemoteMemoryOptions options;
  options.resolve_at_once = false;  // this is a callback
  options.timeout_us = kTimeoutUs;
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<RemoteMemory> memory,
                        RemoteMemory::Open(channel, offer.memory(), options));
  if (offer.number() == 0 || !IsRingSize(memory->size()) || (memory->rights() & kMayWrite) == 0) {
    return absl::InvalidArgumentError(
        StrCat("a ring of ", memory->size(), " bytes, number ", offer.number(), ", is none"));
  }
  if (memory->size() > most_bytes) {
    return absl::InvalidArgumentError(StrCat("its ring has ", memory->size(),
                                             " bytes, and RaftNetworkOptions::ring_bytes is ",
                                             most_bytes, " here: say the same in all members"));
  }
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Buffer> local, channel.AllocateBuffer(memory->size()));
  std::unique_ptr<RaftRingWriter> writer(
      new RaftRingWriter(offer.number(), incarnation, memory->size()));
  writer->local_ = std::move(local);
  writer->memory_ = std::move(memory);
  return writer;
}

bool RaftRingWriter::Reserve(const raft_message& message, uint64_t bytes,
                             wire::Ring::Place* place) {
  const MutableByteSpan payload = Reserve(bytes, place);
  if (payload.empty()) return false;
  CopyPayload(message, reinterpret_cast<char*>(payload.data()));
  place->set_crc32c(Crc32c({payload.data() - kStampBytes, kStampBytes + bytes}));
  return true;
}

MutableByteSpan RaftRingWriter::Reserve(uint64_t bytes, wire::Ring::Place* place) {
  if (bytes > MostPayload(bytes_)) return {};
  const uint64_t record = RecordBytes(bytes);
  uint64_t position = head_;
  if (const uint64_t offset = head_ % bytes_; record > bytes_ - offset) position += bytes_ - offset;
  const uint64_t used_from =
      records_.empty() ? taken_ : std::min(taken_, records_.front().position);
  if (position + record - used_from > bytes_) return {};
  const uint64_t offset = position % bytes_;
  const MutableByteSpan local = local_->bytes().subspan(offset, kStampBytes + bytes);
  const Stamp stamp = StampOf(number_, position);
  std::memcpy(local.data(), stamp.data(), kStampBytes);
  place->set_number(number_);
  place->set_position(position);
  records_.push_back({position, kStampBytes + bytes});
  head_ = position + record;
  return local.subspan(kStampBytes);
}

RaftRingWriter::Record* RaftRingWriter::RecordAt(uint64_t position) {
  const auto at = std::lower_bound(
      records_.begin(), records_.end(), position,
      [](const Record& record, uint64_t wanted) { return record.position < wanted; });
  return at != records_.end() && at->position == position ? &*at : nullptr;
}

RaftRingWriter::Record* RaftRingWriter::Begin(uint64_t position) {
  Record* const record = RecordAt(position);
  if (record == nullptr || record->begun) return nullptr;
  record->begun = true;
  ++writing_;
  return record;
}

bool RaftRingWriter::Write(const wire::Ring::Place& place,
                           Function<void(const absl::Status&)> failed) {
  const uint64_t position = place.position();
  const Record* const record = Begin(position);
  if (record == nullptr) return false;
  const uint64_t offset = position % bytes_;
  const bool done =
      memory_->WriteNow(offset, local_->slice(offset, record->bytes),
                        [this, &memory = *memory_, position,
                         failed = std::move(failed)](const absl::Status& status) mutable {
                          if (status.ok()) return EndWrite(position);
                          // After its deadline the transport may still have the local memory.
                          memory.WhenReclaimed([this, position] { EndWrite(position); });
                          failed(status);
                        });
  if (done) EndWrite(position);
  return true;
}

bool RaftRingWriter::WriteAcknowledged(const wire::Ring::Place& place,
                                       Function<void(const absl::Status&)> ended) {
  const uint64_t position = place.position();
  const Record* const record = Begin(position);
  if (record == nullptr) return false;
  const uint64_t offset = position % bytes_;
  const RemotePiece piece{offset, local_->slice(offset, record->bytes)};
  memory_->WriteAcknowledged(
      {&piece, 1}, [this, &memory = *memory_, position,
                    ended = std::move(ended)](const absl::Status& status) mutable {
        if (status.ok()) {
          EndWrite(position);
        } else {
          memory.WhenReclaimed([this, position] { EndWrite(position); });  // as in Write()
        }
        ended(status);
      });
  return true;
}

void RaftRingWriter::EndWrite(uint64_t position) {
  --writing_;
  Record* const record = RecordAt(position);
  WEFT_CHECK(record != nullptr);  // Ours: it stays until it is written
  record->written = true;
  Free();
}

absl::Status RaftRingWriter::Acknowledge(uint64_t taken) {
  if (taken > head_) {
    return absl::InvalidArgumentError(StrCat(
        "a member has taken ", taken, " bytes of a ring into which ", head_, " were written"));
  }
  taken_ = std::max(taken_, taken);  // large messages are overtaken
  Free();
  return absl::OkStatus();
}

void RaftRingWriter::Free() {
  while (!records_.empty()) {
    const Record& first = records_.front();
    if (!first.written || first.position + first.bytes > taken_) return;
    records_.pop_front();
  }
}

// --- all of a member -----------------------------------------------------------------------------

RaftRings::~RaftRings() {
  // Writes that end meanwhile look for their peer.
  for (auto& [id, peer] : peers_) {
    if (peer.writer != nullptr) given_up_writers_.emplace(id, std::move(peer.writer));
  }
  given_up_writers_.clear();
}

void RaftRings::GiveUpWriter(raft_id id, Peer& peer, std::string_view why) {
  if (peer.writer == nullptr) return;
  ++stats_.given_up;
  WEFT_LOG_EVERY_N_SEC(kInfo, 1, "gave up a ring of member ", id, " of a Raft group: ", why);
  given_up_writers_.emplace(id, std::move(peer.writer));
}

void RaftRings::GiveUpReader(raft_id id, Peer& peer) {
  if (peer.reader == nullptr) return;
  if (!peer.reader->given_up()) ++stats_.given_up;
  // First out of the way of messages: outside of a turn of the engine GiveUp() makes a turn.
  given_up_readers_.emplace(id, std::move(peer.reader))->second->GiveUp();
}

void RaftRings::Tell(raft_id to, bool wants, wire::Message* message) {
  // libraft also answers those who are no members: they get no place in the map.
  const auto found = wants ? peers_.try_emplace(to).first : peers_.find(to);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (wants && peer.writer == nullptr) {
    peer.has_asked = true;
    message->mutable_ring()->set_wanted(true);
    message->mutable_ring()->set_last(peer.last_writer);
  }
  if (peer.reader == nullptr || peer.reader->given_up()) return;
  if (std::exchange(peer.owes_offer, false)) {
    peer.reader->Offer(message->mutable_ring()->mutable_offer());
  } else if (peer.reader->taken() > 0) {
    message->mutable_ring()->set_number(peer.reader->number());
    message->mutable_ring()->set_taken(peer.reader->taken());
  }
}

bool RaftRings::Reserve(raft_id to, const raft_message& message, uint64_t bytes,
                        wire::Message* encoded) {
  const auto found = peers_.find(to);
  if (found == peers_.end() || found->second.writer == nullptr) return false;
  Peer& peer = found->second;
  const uint64_t now_ns = engine_.clock().NowNs();
  if (peer.writer->is_empty()) peer.progress_ns = now_ns;
  if (peer.writer->Reserve(message, bytes, encoded->mutable_ring()->mutable_place())) return true;
  encoded->mutable_ring()->clear_place();
  ++stats_.no_room;
  if (!peer.writer->is_empty() && now_ns - peer.progress_ns > kPauseNs) {
    GiveUpWriter(to, peer, "it is full, and nothing was taken out of it for too long");
  }
  return false;
}

absl::Status RaftRings::Write(raft_id to, Channel& channel, const wire::Message& encoded) {
  const wire::Ring::Place& place = encoded.ring().place();
  Peer& peer = peers_[to];
  if (peer.writer != nullptr && peer.writer->incarnation() != channel.peer_incarnation()) {
    GiveUpWriter(to, peer, "the member was started again");
  }
  auto failed = [this, to, number = place.number()](const absl::Status& status) {
    const auto found = peers_.find(to);
    if (found == peers_.end() || found->second.writer == nullptr ||
        found->second.writer->number() != number) {
      return;
    }
    GiveUpWriter(to, found->second, ToStd(status.message()));
  };
  if (peer.writer == nullptr || peer.writer->number() != place.number() ||
      !peer.writer->Write(place, std::move(failed))) {
    return absl::UnavailableError(
        StrCat("the ring of member ", to, " was given up; libraft sends it again"));
  }
  ++stats_.written;
  return absl::OkStatus();
}

void RaftRings::OnFailed(raft_id to, const wire::Message& encoded) {
  if (!encoded.has_ring() || !encoded.ring().has_place()) return;
  const auto found = peers_.find(to);
  if (found == peers_.end() || found->second.writer == nullptr ||
      found->second.writer->number() != encoded.ring().place().number()) {
    return;
  }
  GiveUpWriter(to, found->second, "a message that says where a record lies was not sent");
}

absl::Status RaftRings::Hear(const wire::Message& message, uint64_t incarnation, Channel* channel,
                             bool is_member) {
  if (!message.has_ring() || !is_member) return absl::OkStatus();
  const wire::Ring& ring = message.ring();
  Peer& peer = peers_[message.from()];
  if (ring.has_offer() && channel != nullptr) {
    HearOffer(message.from(), peer, ring.offer(), incarnation, *channel);
  }
  if (ring.wanted()) HearWanted(message.from(), peer, ring.last(), incarnation);
  if (peer.writer == nullptr || ring.number() != peer.writer->number()) return absl::OkStatus();
  if (ring.taken() > peer.writer->taken()) peer.progress_ns = engine_.clock().NowNs();
  absl::Status acknowledged = peer.writer->Acknowledge(ring.taken());
  if (!acknowledged.ok()) GiveUpWriter(message.from(), peer, ToStd(acknowledged.message()));
  return acknowledged;
}

void RaftRings::HearOffer(raft_id id, Peer& peer, const wire::Ring::Offer& offer,
                          uint64_t incarnation, Channel& channel) {
  if (offer.number() == peer.last_writer) return;
  GiveUpWriter(id, peer, "the member has another one");
  const uint64_t now_ns = engine_.clock().NowNs();
  const bool is_early = peer.writer_since_ns != 0 && now_ns - peer.writer_since_ns < kPauseNs;
  if (!peer.has_asked || is_early || given_up_writers_.count(id) >= kMaxGivenUp) return;
  peer.writer_since_ns = now_ns;
  auto writer = RaftRingWriter::Make(channel, offer, incarnation, bytes_);
  if (!writer.ok()) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 30, "a ring of a member of a Raft group at ", channel.address(),
                         " cannot be used: ", writer.status().message());
    return;
  }
  peer.writer = *std::move(writer);
  peer.last_writer = offer.number();
  peer.has_asked = false;
  peer.progress_ns = now_ns;
}

void RaftRings::HearWanted(raft_id id, Peer& peer, uint64_t last, uint64_t incarnation) {
  // What was started again knows nothing of the positions that have come in it, taken or not.
  if (peer.reader != nullptr && peer.reader_for != incarnation) GiveUpReader(id, peer);
  const bool is_fresh = peer.reader != nullptr && !peer.reader->given_up() &&
                        peer.reader->taken() == 0 && peer.reader->number() != last;
  const uint64_t now_ns = engine_.clock().NowNs();
  const bool is_early = peer.reader_since_ns != 0 && now_ns - peer.reader_since_ns < kPauseNs;
  if (is_fresh) {
    peer.owes_offer = true;  // the last one was lost
    return;
  }
  if (is_early || given_up_readers_.count(id) >= kMaxGivenUp) return;
  GiveUpReader(id, peer);
  peer.reader_since_ns = now_ns;
  peer.reader_for = incarnation;
  auto reader = RaftRingReader::Make(engine_, bytes_);
  if (!reader.ok()) {
    WEFT_LOG_EVERY_N_SEC(kWarning, 1,
                         "no ring for a member of a Raft group: ", reader.status().message());
    return;
  }
  peer.reader = *std::move(reader);
  peer.owes_offer = true;
  ++stats_.offered;
}

absl::StatusOr<char*> RaftRings::Take(const wire::Message& message, uint64_t bytes) {
  const auto found = peers_.find(message.from());
  if (found == peers_.end() || found->second.reader == nullptr) {
    return absl::FailedPreconditionError("a record in a ring that there is not");
  }
  RaftRingReader& reader = *found->second.reader;
  absl::StatusOr<char*> payload = reader.Take(message.ring().place(), bytes);
  if (payload.ok()) {
    ++stats_.taken;
  } else if (!absl::IsFailedPrecondition(payload.status())) {
    ++stats_.given_up;
    reader.GiveUp();
  }
  return payload;
}

void RaftRings::Tidy() {
  std::erase_if(given_up_writers_, [](const auto& each) { return each.second->idle(); });
  std::erase_if(given_up_readers_, [](const auto& each) { return each.second->reclaimed(); });
}

bool RaftRings::Forget(raft_id id, const Channel& channel) {
  if (const auto found = peers_.find(id); found != peers_.end()) {
    Peer& peer = found->second;
    GiveUpWriter(id, peer, "the member is gone, or has moved");
    GiveUpReader(id, peer);
    peers_.erase(found);
  }
  Tidy();
  return std::none_of(given_up_writers_.begin(), given_up_writers_.end(),
                      [&channel](const auto& each) { return &each.second->channel() == &channel; });
}

RaftRings::Stats RaftRings::stats() const {
  Stats stats = stats_;
  for (const auto& [id, writer] : given_up_writers_) stats.writing += writer->writing();
  for (const auto& [id, peer] : peers_) {
    if (peer.writer != nullptr) stats.writing += peer.writer->writing();
  }
  return stats;
}

}  // namespace weft::embed
