// Mends from outside what libraft 0.15 does wrong: with a group's configuration, with elections and
// terms, when a disk fails, with answers to a leader, and with what it does not write.
//
//   raft_uv_init(&io, ...);  RaftNetwork::Attach(&io, ...);  // disk and network, or others
//   RaftRepair repair(&io);                                  // before them
//   raft_init(&raft, &io, &fsm, id, address);  raft_start(&raft);
//   ...
//   raft_close(&raft, closed);                               // then it may go
//
// It puts functions of its own in the place of the raft_io's load, set_term, set_vote, send, start,
// append and snapshot_put, which call those that were there. From load() on, which raft_start()
// begins with, libraft also asks a copy of its raft_fsm: the same, but for a snapshot() that may
// say RAFT_BUSY (libraft then asks again, later) before it calls the one that is the user's.
//
// A change of members counts from when it is in a member's log, committed or not. One that a new
// leader does not have goes again, when that leader's entries take its place, and the configuration
// before it is to count. There libraft has four defects. C is a change, e any other entry, the last
// one of each log is the one that goes:
//
//   1. snapshot(C1 e e) e C2    membershipRollback() looks for C1 in the log alone, reads a null
//                               pointer, and the process ends.
//   2. C1 e C2, after a start   restoreEntries() holds C2 for committed: when it goes, C2's members
//                               stay in force, though no entry has them.
//   3. C1 e C2 (snapshot here)  takeSnapshot() stores the members of C2 with the index of C1. When
//                               C2 goes, they stay in the snapshot.
//   4. C1 e C2, then another    configuration_uncommitted_index still names C2, which the snapshot
//      member's snapshot        has taken the place of, and a later conflict rolls back.
//
// And some with elections, answers, memory, snapshots, and disks:
//
//   5. TimeoutNow, disk fails   convertToCandidate() makes a candidate that cannot store its vote a
//                               follower again, but leaves a candidate's flags where a follower has
//                               its leader's address, frees that, and the process ends.
//   6. C1 e, a new leader       A follower answers a new leader with the end of its own log or
//                               disk, e, about which it was not asked. If the leader has an entry
//                               of its own there by then, it takes the two for the same, and
//                               commits what it alone has.
//   7. any C, and barriers      The eight bytes of a barrier's entry, and up to seven behind a
//                               configuration, are never written: what the heap had there goes to
//                               all members, and onto their disks.
//   8. C makes a voter          A member that has become a voter, and has not got C yet, looks at
//                               its own configuration: it gives no vote, and holds a leader that
//                               has gone for alive for good, as only voters ask for an election. A
//                               group that needs its vote has no leader any more.
//   9. snapshot(C1 e e) e       A member looks for the entry before a message's first one in its
//                               log alone. If a leader's own snapshot ends earlier, it refuses each
//                               message behind that one, for good. Where a message begins with the
//                               first entry of all it does not look, and appends what its snapshot
//                               has once more, at its end.
//  10. C1 e C2, then elected    A follower takes C2 for its configuration when its disk has it, and
//                               never if it has been elected by then: it leads with the members of
//                               C1, and its next change takes C2 back, also one that is committed.
//                               After a start it holds C2 for committed (2): it takes another
//                               change at once, and says of that one that it is done when C2 is.
//  11. e, then leads again      A leader commits an entry of an earlier term once most members have
//                               it (Raft's figure 8): one that has an entry of a later term there
//                               may still be elected, and takes away what was committed.
//  12. e, disk fails            A leader that could not append takes e off its log, leads on, and
//                               puts the next entry in its place. Members that have e there take it
//                               for that one, as it has the same term, and keep it.
//  13. C leaves one voter       It elects itself in the term it is in (convertToCandidate()), in
//                               which it may have given its vote to one that still leads: what two
//                               leaders of one term put at one place, others take for the same.
//  14. another's snapshot       A follower answers when it has stored it. If it stands for election
//                               by then, it takes a candidate's flags for its leader's address, and
//                               the process ends.
//  15. e, a later term          A request for a pre-vote is answered with its own term. A member
//                               that has the longer log, and an earlier term, never hears of the
//                               later one, in which it is refused: two of three have no leader for
//                               good.
//
// Before libraft hears a message, it sees which entries libraft is about to take off its log. If
// there is a change among them (1, 2), it puts the configuration before it in place: that of an
// earlier entry, or of the last snapshot. It forgets a change that a snapshot has taken the place
// of (4). Snapshots wait for a change that is under way (3). Where a term or a vote could not be
// stored it clears the flags, which nobody reads any more (5). An answer says no more than what the
// leader of its term has compared: up to the last entry of a message that this member takes, or the
// end of its snapshot, both logs are the same (6). What is loaded, and what is appended, which a
// leader does before it sends it, has zeros in these bytes; an entry that has more at its end stays
// as it is (7). A member that is no voter and has not heard of a leader for as long as a voter
// would have waited hears a candidate as a voter (8): nobody asks it but who counts it for one.
// Of a message that begins before the end of this member's snapshot it hears what is behind that
// (9): the rest is committed, and the same. Before a follower votes or stands for election, the
// last change in its log is put in place, and counts as under way until it is applied (10). Who is
// elected by others appends a barrier, and until its disk has an entry of its term, answers count
// for no more than what is committed (11). A leader whose log has become shorter has lost an
// append: it appends nothing more in that term, and sends no entries or heartbeats, until another
// one leads (12). The only voter of a group stays like that until it is started again. Who needs no
// other vote begins a term, and votes for itself, as a candidate does (13); if its disk takes
// neither it goes on to follow. Who does not follow any more answers no leader of its own (14). Who
// refuses a vote tells its term (15).
//
//   where                      function            defects
//   each message: first        SkipCovered()       9
//     then                     BeforeMessage()     4; 1 and 2; of 6, how far both logs are the same
//     then                     TakeUpLastChange()  10; and at each tick of a silent leader's
//     then                     HoldBack()          11, of answers
//     last                     NonVoterAsked()     8
//   behind a voter's answer    BeginTerm()         11; and at the leader's ticks, if need be
//   start(), a silent leader's BeginTermAlone()    13
//     tick, TimeoutNow
//   send()                     Correct()           6, by what BeforeMessage() has noted
//     before                   IsToNobody()        14
//     of votes                 TellTerm()          15
//   append(), send()           HasLostAppend()     12, by what NoteAppend() has noted
//   set_term(), set_vote()     AfterFailedWrite()  5
//   load(), append()           ClearUnwritten()    7
//   load(), snapshot_put()     KeepSnapshot()      1 and 2: the members to go back to
//   the raft_fsm's snapshot()  PermitsSnapshot()   3
//
// SkipCovered() changes the message before all others look at it: they see what libraft will hear.
//
// Left are the bytes behind configurations that libraft's disk half encodes by itself: the first
// entry's, when a group is made, and those beside a snapshot. They stay on that disk, but for a
// snapshot that goes by libraft's own TCP.
//
// libraft_defects_test.cc plays all of them but the ninth, to which it does not get, in libraft's
// own simulated cluster, with (but the twelfth) and without this. This reads libraft's log as
// raft.h of 0.15 lays it out.
//
//   state      set by            what holds
//   attached   the constructor   the functions are in the raft_io; libraft need not be there yet
//   loaded     load()            libraft asks the copy of its raft_fsm
//   gone       the destructor    the raft_io's functions are those that were there, but for the
//                                ones that others have put there since; libraft asks nobody
//
// Threads: libraft's, one; made and destroyed on any, when libraft is not at work.
// Lifetime: the raft_io outlives it, and so does, until raft_close() has called back, whatever was
//   in the raft_io when it was attached (but for the send(), start() and close() of a network half
//   that went first, and has put back what it found). The raft and its raft_fsm outlive libraft's
//   use of them. It outlives that too, and may go inside the callback of raft_close(): it does not
//   look at the raft any more.
// Errors: the raft_io's, as they are; where nothing earlier is known (a member that joins), libraft
//   does what it does. To attach a second one to a raft_io ends the process.
// Invariants: it writes to raft::configuration, ::configuration_index,
//   ::configuration_uncommitted_index, ::current_term, ::voted_for and ::fsm, where a follower has
//   its leader, and to bytes of entries that nobody reads, alone; raft.h tells what they mean. It
//   calls raft_barrier().
#pragma once

#include "embed/raft/libraft.h"

namespace weft::embed {

class RaftRepair {
 public:
  // REQUIRES: the raft_io is filled, has none yet, and is no running libraft's.
  explicit RaftRepair(raft_io* io);
  ~RaftRepair();
  RaftRepair(const RaftRepair&) = delete;
  RaftRepair& operator=(const RaftRepair&) = delete;

 private:
  struct Functions;  // raft_io's and raft_fsm's
  struct StateMachine {
    raft_fsm copy = {};         // what libraft asks; first, so that its address is this struct's
    raft_fsm* users = nullptr;  // null: nothing was loaded yet
    RaftRepair* repair = nullptr;
  };

  raft* Raft() const { return static_cast<raft*>(io_->data); }  // raft_init() has put it there
  void TakePlaceOfStateMachine();
  // For each snapshot that is loaded or stored: copies its configuration.
  void KeepSnapshot(const raft_snapshot& snapshot);
  void BeforeMessage(const raft_message& message);
  // False: a change of members is under way. Remembers it, and goes on to refuse until it is
  // applied or gone.
  bool PermitsSnapshot();
  void Correct(raft_append_entries_result* result) const;
  void BeginTerm();
  // As a candidate does, for who needs no other vote. An error of the raft_io: it must not lead.
  int BeginTermAlone();
  void NoteAppend();
  // `added`: entries that are in the log already, and are to be appended now.
  bool HasLostAppend(unsigned added) const;

  raft_io* const io_;
  const raft_io below_;  // the functions that were there
  raft_io_tick_cb tick_ = nullptr;
  raft_io_recv_cb receive_ = nullptr;
  StateMachine state_machine_;

  raft_configuration snapshot_;     // of the last snapshot
  raft_index snapshot_index_ = 0;   // its entry; 0: there is none
  raft_index change_index_ = 0;     // for which snapshots wait
  raft_term leaders_term_ = 0;      // of the last leader that was heard
  raft_index same_ = 0;             // so far its log and this member's are the same
  struct raft_barrier first_ = {};  // of the term in which this member leads
  bool is_first_queued_ = false;    // libraft has it
  raft_term appended_term_ = 0;     // in which it has led, and appended last
  raft_index appended_ = 0;         // the last entry of that
};

}  // namespace weft::embed
