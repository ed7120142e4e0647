// A leader's writes alone are the quorum: entries are acknowledged when they are in a follower's
// memory, and no processor of the follower's has to do with it, where the path can write so.
//
//   follower: one grant                               leader: a ring for each follower
//     ── offer: ring, term ─────────────────────────▶
//     ◀════ record: an AppendEntries, with its bytes ══   acknowledged: the follower "has" it,
//                                                         which libraft hears as a result
//   at each tick and message: records, in order,
//   go to libraft as messages do ── results, taken, matched ──▶ room again
//
// The follower takes all that was written before libraft gets a message, which may build on it, and
// before it leaves a term. At a tick it takes kAtOnceBytes, and the rest in later turns: what its
// engine has to do, over tcp for the leader's next writes too, does not wait for all of it.
//
// What it costs: DURABILITY. A commit stands on the leader's disk, and in the memory of the others
// of its majority; their disks have it some ticks later. So:
//
//   tolerated                   as with disks: the end (kill -9, a crash of the host) of any
//                               minority, one after the other too. Who was started again counts
//                               among the minority until it has caught up (below).
//   not tolerated               a majority that ends at once (a power cut). Nothing acknowledged is
//                               silently lost or contradicted: the group stands still, for those
//                               that were started again do not vote without a leader. Who then
//                               decides that a member goes on from its disk
//                               (RaftNetworkOptions::memory_was_lost = false, though it was) may
//                               lose what the leader's disk alone has.
//
// Why it is Raft still. "V has e" means: V's log has e, or V will take a whole record with e out of
// its ring before it leaves the leader's term. Invariants:
//
//   1. A grant is for one leader in one term, and one ring. It is made behind a message of that
//      leader's in that term that libraft has taken, so the logs match up to some entry.
//   2. V leaves a term (a message of a higher term, a request to vote in one, a candidacy of its
//      own, of which ticks and TimeoutNow are the only causes) only without a grant: first it is
//      revoked, then the memory is *reclaimed* (nobody can write any more), then the ring's whole
//      records are handed to libraft, as messages of the term that still lasts. Until all that is
//      done the message waits (Paths, below) or is dropped, as a lost one, and a tick sees no time
//      pass. (A request to vote that libraft 0.15 refuses because it has a leader, and stays in the
//      term, goes to it at once.) So a vote is given, and asked for, with all entries that were
//      acknowledged.
//   3. The leader takes a record for acknowledged when its write has ended with OK
//      (RemoteMemory::WriteAcknowledged()), the records before it were, and V has the entry before
//      it: by an earlier record, or by V's word (RemoteWrites.matched), which V gives of entries
//      that were compared with the leader's and are on its disk. A record that was cut short by the
//      revoke was not acknowledged; its checksum says so to V.
//   4. V hands a record to libraft when its log has the entry before it, with the term that the
//      leader's has: so libraft cannot refuse it. If libraft does not take it all the same (it
//      installs a snapshot, has no memory), V does not leave the term. Such a record waits; one
//      whose predecessor is missing was not acknowledged (3), and is forgotten with its grant.
//   5. Changes of members go by messages: libraft 0.15 follows them when they are on its disk.
//   6. A process that ends loses its ring. So `keep(true)` is called before the first grant, and a
//      process that is started after that has `memory_was_lost`: it gives no vote and asks for none
//      until it has caught up: it asks leaders (RemoteWrites.lost, a random number of its own), one
//      answers with the last entry of its log when it heard that, gives up its ring in the old
//      process, and sends again what that may have had (libraft hears that a message failed). That
//      entry, in the same term, on this disk, ends the state. What the old process had acknowledged
//      is in that leader's log: what it wrote itself, it wrote before it heard; what is committed
//      of earlier terms was in the logs of its voters, of which this was none. `keep(false)` is
//      called when a member is closed, no record is left, and its disk has the whole log.
//
//   state of the grant  set by                              left for
//   none                                                    open: a leader wants one (1)
//   open                offered with the next result        revoked: the term is left; the leader
//                                                           wants another; a record is wrong;
//                                                           libraft is unavailable
//   revoked             ExportedMemory::Revoke()            none: reclaimed, if need be by the end
//                                                           of the connection, and drained (2)
//
//   state of a ring at the leader   open (an offer in its term), given up (a write failed, another
//                                   term, the member was started again): entries go by messages
//
// Paths: shm and tcp reclaim at once, InfiniBand and RoCE cards do. On ofi_tcp, Soft-RoCE and iWARP
// the deposed leader's provider or engine has to answer first, and on shm a copy in whose middle it
// was stopped does not end. If it has not answered kAnswerNs after somebody wanted to leave its
// term, its connection is closed, whose end reclaims (docs/remote_memory.md): the connection on
// which it has leased the ring, which is that of the peer session; both sides make another one.
// What it was writing ends there with an error: behind its socket or endpoint nothing arrives any
// more, and a copy over shm is not taken for done if its right was gone when it ended. A request to
// vote that came meanwhile, or the leader's word to stand for election (TimeoutNow), waits for all
// that and is handed to libraft then: one, the last, for a second. The end of a write is known
// without the follower's processor on shm, where the memory is mapped, and on verbs, where its card
// proves it; on tcp its engine moves the bytes, in which libraft has no part.
//
// A member that lies can make others lose what is acknowledged, as with messages: what it says of
// its log is believed. What it writes is checked as what comes in messages: lengths, checksum,
// sender, term. A record that is wrong ends the grant. One grant a second, kMaxGivenUp rings that
// are not reclaimed: as raft_ring.h.
//
// Threads: the engine's. Lifetime: engine and raft_io outlive it; destroyed outside of callbacks,
//   before the channels. Errors: as marked.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/function.h"
#include "embed/raft/libraft.h"
#include "embed/raft/raft_ring.h"
#include "embed/raft/raft_wire.pb.h"
#include "weft/channel.h"
#include "weft/coroutine.h"
#include "weft/engine.h"

namespace weft::embed {

class RaftRemoteWrites {
 public:
  // How long a deposed leader has to give its memory back before its connection is closed: many
  // round trips, and a fiftieth of libraft's election timeout.
  static constexpr uint64_t kAnswerNs = 20'000'000;
  // Of records that are taken at a time, in bytes; one at least. Some 130 with a command of 100
  // bytes each, with which libraft and its state machine are busy for about 1 ms. Lower: others
  // wait less. A loop that sleeps takes the rest a millisecond later (UvEngine), in which a leader
  // writes some 30: with fewer than that at a time a follower would never come to the end.
  static constexpr uint64_t kAtOnceBytes = 32 << 10;

  struct Options {
    // False: it has no rings, and gives none. It answers members that have lost theirs.
    bool enabled = false;
    uint64_t ring_bytes = 0;  // REQUIRES where enabled: IsRingSize()
    bool memory_was_lost = false;
    std::function<absl::Status(bool)> keep = {};  // RaftNetworkOptions::keep_memory_mark
  };

  // `receive`: hands a message to libraft, which takes what it points to.
  RaftRemoteWrites(Engine& engine, raft_io* io, Options options,
                   Function<void(raft_message*)> receive);
  ~RaftRemoteWrites();
  RaftRemoteWrites(const RaftRemoteWrites&) = delete;
  RaftRemoteWrites& operator=(const RaftRemoteWrites&) = delete;

  // --- sending ----------------------------------------------------------------------------------

  // What the peer is told beside a message.
  void Tell(const raft_message& message, wire::Message* encoded);
  // Copies an AppendEntries, its payload of so many bytes included, to where it will be written
  // from. False: it has to go as a message. Makes no turn of the engine.
  bool Reserve(const raft_message& message, uint64_t bytes, const wire::Message& encoded,
               wire::Ring::Place* place);
  // Writes what was reserved; `ended` runs once, and then libraft hears of it, if it was good.
  // UNAVAILABLE: the ring has been given up since; `ended` does not run.
  absl::Status Write(raft_id to, Channel& channel, const wire::Ring::Place& place,
                     Function<void(const absl::Status&)> ended);
  // What was reserved will not be written.
  void OnFailed(raft_id to, const wire::Ring::Place& place);
  // The next message of entries to this peer has to fail, in its callback (invariant 6).
  bool MustFail(raft_id to) const;
  void NoteFailed(raft_id to);  // it has

  // --- receiving --------------------------------------------------------------------------------

  // As RaftRings::Hear().
  absl::Status Hear(const wire::Message& message, uint64_t incarnation, Channel* channel,
                    bool is_member);
  // Around each message that libraft is handed. False: drop it.
  bool BeforeMessage(const raft_message& message);
  void AfterMessage();
  // Before each tick. Returns what raft_io::time() has to say during all of it: `now`, or a time at
  // which this member does not become a candidate.
  raft_time BeforeTick(raft_time now);
  // Before the disk half is closed.
  void BeforeClose();

  // It has lost its memory, and not caught up.
  bool recovering() const { return lost_ != 0; }
  RaftRings::Stats stats() const;

  // --- outside of callbacks: as RaftRings's -----------------------------------------------------

  void Tidy();
  bool Forget(raft_id id, const Channel& channel);

 private:
  // What a leader has under way to a follower.
  struct Pending {
    uint64_t position = 0;
    raft_index before = 0;  // the entry that has to be there
    raft_index last = 0;
    bool written = false;
  };
  struct Peer {
    std::string address;
    std::unique_ptr<RaftRingWriter> writer;
    raft_term term = 0;  // of `writer`
    std::deque<Pending> pending;
    raft_index known = 0;        // it has all up to there
    raft_term claimed_term = 0;  // the last one in which libraft was told of a written record
    uint64_t last_writer = 0;
    uint64_t writer_since_ns = 0;
    bool has_asked = false;
    // A question that was heard, in which term, and the last entry then.
    uint64_t lost = 0;
    raft_term lost_term = 0;
    raft_index log_end = 0;
    bool must_fail = false;
  };
  struct Grant {
    raft_id leader = 0;
    raft_term term = 0;
    std::unique_ptr<RaftRingReader> reader;
    bool owes_offer = true;
    uint64_t left_ns = 0;  // when its term was to be left first; 0: it was not
    bool closed = false;   // its connection
  };
  // For the end of a grant: a message without a payload.
  struct Waiting {
    raft_message message;
    std::string address;  // of its sender
    uint64_t since_ns = 0;
  };
  // An entry of a leader's log in its term.
  struct Mark {
    raft_id leader = 0;
    raft_term term = 0;
    raft_index index = 0;
    raft_term index_term = 0;
  };
  struct Asked {
    raft_id leader = 0;
    raft_term term = 0;
    uint64_t last = 0;
  };
  struct Record {
    uint64_t position = 0;
    uint64_t bytes = 0;
    wire::Message message;
    char* payload = nullptr;
  };
  enum class Drained : uint8_t {
    kAll = 1,
    kWaits = 2,  // for an entry before it: it was not acknowledged
    kStuck = 3,  // libraft has not taken it
    kSome = 4,   // there may be more
  };

  // Null before raft_init().
  const struct raft* raft() const { return static_cast<const struct raft*>(io_->data); }
  bool Follows(raft_id leader, raft_term term) const;
  bool LogHas(raft_index index, raft_term term) const;
  // Up to where this log was compared with that leader's, and is on the disk.
  raft_index Matched(raft_id leader, raft_term term) const;
  void NoteCompared(const Mark& mark);
  void LookWhetherCaughtUp();

  bool Look(Record* record);
  void Refuse();  // what the leader has written
  // Hands records to libraft: those that begin no further than so many bytes behind what was taken.
  Drained Drain(uint64_t bytes);
  void TendGrant();
  bool Leave();
  bool LeaveTerm();
  void Keep(const raft_message& message);
  bool IsDue(const raft_message& message) const;
  void LookAgain();
  void ConsiderGrant();

  void HearLost(Peer& peer, raft_id id, uint64_t question, uint64_t incarnation);
  void HearLogEnd(const wire::Message& message);
  void HearOffer(Peer& peer, raft_id id, const wire::RemoteWrites& said, uint64_t incarnation,
                 Channel& channel);
  void GiveUpWriter(raft_id id, Peer& peer, std::string_view why);
  void Advance(raft_id id, Peer& peer);

  Engine& engine_;
  raft_io* const io_;
  const Options options_;
  Function<void(raft_message*)> receive_;
  RaftRings::Stats stats_;

  // As a leader.
  std::map<raft_id, Peer> peers_;
  std::multimap<raft_id, std::unique_ptr<RaftRingWriter>> given_up_writers_;

  // As a follower.
  std::optional<Grant> grant_;
  std::optional<Asked> asked_;
  uint64_t granted_ns_ = 0;  // when the last grant was made; 0: never
  std::deque<std::unique_ptr<RaftRingReader>> given_up_readers_;
  Mark handing_;   // index 0: nothing that can be compared
  Mark compared_;  // of the last leader: the furthest
  uint64_t lost_;  // the question; 0: it has been answered, or there was none
  Mark log_end_;   // the answer
  bool kept_;      // keep(true) was called, or by the process before
  bool draining_ = false;
  std::optional<Waiting> waiting_;
  Alarm look_;  // set while there is one
  Alarm rest_;  // set while Drain() has left something
};

}  // namespace weft::embed
