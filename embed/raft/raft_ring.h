// Write, then notify: entries of a log travel as one-sided writes into a ring of the receiver's
// memory, and a small message says where they lie.
//
//   follower: RaftRingReader                          leader: RaftRingWriter
//   Make()
//     ── Offer(), in any message ───────────────────▶ Make()
//                                                     Reserve(), Write()
//     ◀═══════════════ one-sided write ═════════════
//   Take() ◀── Place, in the message of the entries ─
//     ── taken(), in any message ───────────────────▶ Acknowledge(): room again
//
// A record is a stamp (the ring's number and its position, 8 bytes each, little-endian), the
// payload, and up to kRingAlignment - 1 bytes that nobody looks at. Positions count all bytes since
// the ring was made; a record lies at its position modulo the ring's size, in one piece: what would
// cross the end begins at the next round. Numbers are random, and positions never come again.
//
// What a place says is checked before a byte is looked at: number, length, alignment, at most one
// ring ahead of what was taken, within the ring. Then the stamp and the CRC32C over stamp and
// payload: a message that outlives its connection may come without the write that went before it,
// and then finds another record's bytes, or some of its own. A peer that lies in any of this ends
// the ring, not more: its messages are as good as before. A place before what was taken is of a
// message that others have overtaken: it is dropped, and the ring goes on.
//
// What a peer can cost: the CRC of half a ring, and libraft's copy of it, for a message of some
// hundred bytes, as often as it writes another stamp there; a wrong one ends the ring, and there is
// one a second. Of rings that are given up each peer has kMaxGivenUp of either kind, and those that
// it offers are no larger than this member's own. A write that it does not answer ends by its
// deadline, at the latest with its connection.
//
// In place: libraft 0.15 copies each entry of a message into memory of its own, inside the callback
// that hands it over (replicationAppend(), entryCopy()), and frees the batch there. So entries may
// lie in the ring, and their batch is one byte of libraft's allocator that stands for it
// (ReceivedMessage::Decode()). The peer can still change the bytes between the check and
// that copy. It gains nothing: no length is among them, and it may send what it likes.
//
//   state of a ring   set by                                         left for
//   open              Make()                                         given up
//   given up          the writer: a write or a message failed,       a new one, kPauseNs after
//                     nothing was taken for kPauseNs while it was    this one at the earliest
//                     full, the peer was started again; the reader:
//                     a place was wrong, the writer wants another,
//                     or was started again
//
// Threads: the engine's. Lifetime: reader and writer are destroyed outside of callbacks of the
//   engine, a writer before its channel, and idle(), or else its destructor waits for writes:
//   kTimeoutUs and 3 s more at the longest (rpc/memory/remote_memory.h, Deadlines).
// Errors: as marked. Invariants: a record is written over when the reader has taken it and nothing
//   reads its local copy any more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/function.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_wire.pb.h"
#include "weft/channel.h"
#include "weft/engine.h"
#include "weft/memory.h"
#include "weft/remote_memory.h"

namespace weft::embed {

// Of one ring, in bytes. The least has room for two records of a message's usual size; the most
// bounds what a peer can make this process hold.
inline constexpr uint64_t kMinRingBytes = uint64_t{4} << 10;
inline constexpr uint64_t kMaxRingBytes = uint64_t{64} << 20;
// Of records, and of a ring's size, in bytes: a stamp's.
inline constexpr uint64_t kRingAlignment = 16;
constexpr bool IsRingSize(uint64_t bytes) {
  return bytes >= kMinRingBytes && bytes <= kMaxRingBytes && bytes % kRingAlignment == 0;
}

class RaftRingReader {
 public:
  // RESOURCE_EXHAUSTED: no memory, or the engine's limit of exports. REQUIRES: IsRingSize(bytes).
  static absl::StatusOr<std::unique_ptr<RaftRingReader>> Make(Engine& engine, uint64_t bytes);

  uint64_t number() const { return number_; }
  void Offer(wire::Ring::Offer* offer) const;

  // Where the record's payload lies; it may be written over when taken() has been told.
  // FAILED_PRECONDITION: of a ring that was given up, or before what was taken; nothing has
  // changed. INVALID_ARGUMENT, DATA_LOSS: a place that no writer sends, or bytes that are not the
  // record's: give the ring up.
  absl::StatusOr<char*> Take(const wire::Ring::Place& place, uint64_t bytes);
  // Position behind the last record.
  uint64_t taken() const { return taken_; }

  // Of records that come without a message, and say of themselves how long they are: from the
  // payload of the record at `position` on, if a stamp says that it is there, to where the longest
  // one would end; empty: it is not. REQUIRES: `position` is taken(), or NextRound().
  MutableByteSpan Look(uint64_t position) const;
  // Where a record is that would have crossed the end.
  uint64_t NextRound() const;
  // The record at `position` was taken. REQUIRES: Look() has so many bytes there.
  void Took(uint64_t position, uint64_t bytes);

  // The peer is told that its lease is over. In callbacks, too.
  void GiveUp();
  bool given_up() const { return given_up_; }
  // Nobody can write any more; until then the destructor waits.
  bool reclaimed() const { return memory_->reclaimed(); }
  // Closes the connection of a peer that keeps it from being reclaimed, whose end reclaims. In
  // callbacks, too. REQUIRES: given_up().
  void EndHolder() { memory_->EndHolders(); }

 private:
  RaftRingReader(uint64_t number, std::unique_ptr<ExportedMemory> memory)
      : number_(number), memory_(std::move(memory)) {}

  const uint64_t number_;
  const std::unique_ptr<ExportedMemory> memory_;
  uint64_t taken_ = 0;
  bool given_up_ = false;
};

class RaftRingWriter {
 public:
  // Of each write, in microseconds: a ring of 64 MiB takes 4 s over a slow network, 16 MB/s.
  static constexpr uint64_t kTimeoutUs = 5'000'000;

  // `incarnation`: of the server that has offered it. INVALID_ARGUMENT: no ring, or one of more
  // than `most_bytes`; RESOURCE_EXHAUSTED: the channel's pool has no memory for a copy of it.
  static absl::StatusOr<std::unique_ptr<RaftRingWriter>> Make(Channel& channel,
                                                              const wire::Ring::Offer& offer,
                                                              uint64_t incarnation,
                                                              uint64_t most_bytes);

  uint64_t number() const { return number_; }
  uint64_t incarnation() const { return incarnation_; }
  Channel& channel() { return memory_->channel(); }

  // Copies the payload, of so many bytes, to where it will be written from. False: there is no
  // room now, or it is too large. Makes no turn of the engine.
  bool Reserve(const raft_message& message, uint64_t bytes, wire::Ring::Place* place);
  // Where the payload of so many bytes, 1 at least, is to be put; empty: as above. *place has no
  // checksum.
  MutableByteSpan Reserve(uint64_t bytes, wire::Ring::Place* place);
  // Behind the last record.
  uint64_t head() const { return head_; }
  // Once for each Reserve(); makes no turn of the engine. What is sent on the channel behind this
  // finds the bytes. `failed` runs if they may not have been written, perhaps inside. If the
  // message is not sent, the ring is given up. False: nothing was reserved there. It was in another
  // ring, whose number the peer has given to this one as well.
  [[nodiscard]] bool Write(const wire::Ring::Place& place,
                           Function<void(const absl::Status&)> failed);
  // As Write(); `ended` runs in any case: with OK when the bytes are in the reader's memory
  // (RemoteMemory::WriteAcknowledged()).
  [[nodiscard]] bool WriteAcknowledged(const wire::Ring::Place& place,
                                       Function<void(const absl::Status&)> ended);

  // The reader has taken all up to there. INVALID_ARGUMENT: it has not been sent so much.
  absl::Status Acknowledge(uint64_t taken);
  uint64_t taken() const { return taken_; }
  // All that was reserved was taken.
  bool is_empty() const { return records_.empty(); }
  // No write is under way: the transport has no local memory of this.
  bool idle() const { return writing_ == 0; }
  size_t writing() const { return writing_; }

 private:
  struct Record {
    uint64_t position = 0;
    uint64_t bytes = 0;    // with its stamp
    bool begun = false;    // Write() was called
    bool written = false;  // its local copy is not needed any more
  };

  RaftRingWriter(uint64_t number, uint64_t incarnation, uint64_t bytes)
      : number_(number), incarnation_(incarnation), bytes_(bytes) {}

  Record* RecordAt(uint64_t position);  // null: there is none
  Record* Begin(uint64_t position);     // null: there is none to be written
  void EndWrite(uint64_t position);
  void Free();

  const uint64_t number_;
  const uint64_t incarnation_;
  const uint64_t bytes_;
  uint64_t head_ = 0;   // behind the last record
  uint64_t taken_ = 0;  // by the reader, as it says
  std::deque<Record> records_;
  size_t writing_ = 0;
  std::unique_ptr<Buffer> local_;         // as the ring
  std::unique_ptr<RemoteMemory> memory_;  // goes first
};

// The rings of one member: those that others write into here, and those of others.
class RaftRings {
 public:
  // Between two rings of one peer: who asks for one after the other costs that much and no more.
  // Also how long a full ring may stand still; libraft has elected another leader by then.
  static constexpr uint64_t kPauseNs = 1'000'000'000;
  // Of one peer, and of either kind: rings that were given up and have not gone yet. Beyond that it
  // has no new ones.
  static constexpr size_t kMaxGivenUp = 2;

  struct Stats {            // since construction
    uint64_t written = 0;   // messages whose payload was written into a ring
    uint64_t no_room = 0;   // that went as others do, because their ring was full
    uint64_t taken = 0;     // messages whose payload was found in a ring
    uint64_t offered = 0;   // rings that were made for others
    uint64_t given_up = 0;  // of both kinds
    uint64_t writing = 0;   // writes that are under way now
    // kRemoteWrites: messages that were acknowledged by the end of their write; and deposed leaders
    // whose connection was closed, for they did not give their memory back.
    uint64_t acknowledged = 0;
    uint64_t leaders_closed = 0;
  };

  // REQUIRES: IsRingSize(bytes).
  RaftRings(Engine& engine, uint64_t bytes) : engine_(engine), bytes_(bytes) {}
  ~RaftRings();
  RaftRings(const RaftRings&) = delete;
  RaftRings& operator=(const RaftRings&) = delete;

  // --- sending ----------------------------------------------------------------------------------

  // What the peer is told beside a message. `wants`: it is one whose payload could be in a ring.
  void Tell(raft_id to, bool wants, wire::Message* message);
  // As RaftRingWriter's; false also where there is no ring.
  bool Reserve(raft_id to, const raft_message& message, uint64_t bytes, wire::Message* encoded);
  // Writes what was reserved, and makes no turn of the engine. UNAVAILABLE: the ring has been given
  // up since; do not send it.
  absl::Status Write(raft_id to, Channel& channel, const wire::Message& encoded);
  // The message was not sent.
  void OnFailed(raft_id to, const wire::Message& encoded);

  // --- receiving --------------------------------------------------------------------------------

  // What a peer has said beside a message. `channel`: to it, null: there is none; `is_member`: it
  // is in the group's configuration: others have no rings.
  absl::Status Hear(const wire::Message& message, uint64_t incarnation, Channel* channel,
                    bool is_member);
  // As RaftRingReader's; gives the ring up where that says so.
  absl::StatusOr<char*> Take(const wire::Message& message, uint64_t bytes);

  // --- outside of callbacks ---------------------------------------------------------------------

  // Lets go of what was given up.
  void Tidy();
  // The peer's channel is to go. False: not yet, a write on it is under way; ask again.
  bool Forget(raft_id id, const Channel& channel);

  Stats stats() const;

 private:
  struct Peer {
    std::unique_ptr<RaftRingWriter> writer;
    uint64_t last_writer = 0;      // the last ring that was written into
    uint64_t writer_since_ns = 0;  // when that was offered; 0: never
    uint64_t progress_ns = 0;      // when it had room, or got some
    bool has_asked = false;
    std::unique_ptr<RaftRingReader> reader;
    uint64_t reader_for = 0;  // incarnation of the peer that has asked for it
    uint64_t reader_since_ns = 0;
    bool owes_offer = false;
  };

  void GiveUpWriter(raft_id id, Peer& peer, std::string_view why);
  void GiveUpReader(raft_id id, Peer& peer);
  void HearOffer(raft_id id, Peer& peer, const wire::Ring::Offer& offer, uint64_t incarnation,
                 Channel& channel);
  void HearWanted(raft_id id, Peer& peer, uint64_t last, uint64_t incarnation);

  Engine& engine_;
  const uint64_t bytes_;
  Stats stats_;
  std::map<raft_id, Peer> peers_;
  std::multimap<raft_id, std::unique_ptr<RaftRingWriter>> given_up_writers_;
  std::multimap<raft_id, std::unique_ptr<RaftRingReader>> given_up_readers_;
};

}  // namespace weft::embed
