// What libraft 0.15 does wrong with a group's configuration, when a disk fails, with answers to a
// leader, and with what it does not write, put right from outside.
//
// Its user wraps eight of the functions that libraft is given, as examples/raftkv/replica.cc does:
//
//   io->load, io->snapshot_put:   repair.KeepSnapshot(snapshot);          each one that passes
//   io->load, io->append:         RaftRepair::ClearUnwritten(entries, n); then the disk's append
//   io->set_term, io->set_vote:   RaftRepair::AfterFailedWrite(&raft);    where it was not written
//   io->send:                     repair.Correct(message)                 in place of the message
//   io->start's receive:          repair.BeforeMessage(&raft, message);   then libraft's own
//   fsm->snapshot:                if (!repair.PermitSnapshot(raft)) return RAFT_BUSY;
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
// And one each with an election, with answers, and with memory:
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
//
// BeforeMessage() sees which entries libraft is about to take off its log. If there is a change
// among them (1, 2), it puts the configuration before it in place: that of an earlier entry, or of
// the last snapshot. It forgets a change that a snapshot has taken the place of (4).
// PermitSnapshot() lets snapshots wait for a change that is under way (3). AfterFailedWrite()
// clears the flags, which nobody reads any more (5). Correct() lets an answer say no more than what
// the leader of its term has compared: up to the last entry of a message that this member takes, or
// the end of its snapshot, both logs are the same (6). ClearUnwritten() makes these bytes zeros
// before they are stored or sent, and leaves an entry that has more at its end as it is (7).
//
// libraft_defects_test.cc plays all of them in libraft's own simulated cluster, without any of
// this.
//
// It reads libraft's log as raft.h of 0.15 lays it out.
//
// Threads: libraft's. Lifetime: as the struct raft. Errors: none; where nothing earlier is known (a
//   member that joins), libraft does what it does.
// Invariants: it writes to raft::configuration, ::configuration_index and
//   ::configuration_uncommitted_index, where a follower has its leader's address, and to bytes of
//   entries that nobody reads, alone; raft.h tells what they mean.
#pragma once

#include <cstddef>

#include "embed/raft/libraft.h"

namespace weft::embed {

class RaftRepair {
 public:
  RaftRepair();
  ~RaftRepair();
  RaftRepair(const RaftRepair&) = delete;
  RaftRepair& operator=(const RaftRepair&) = delete;

  // For each snapshot that is loaded or stored: copies its configuration.
  void KeepSnapshot(const raft_snapshot& snapshot);
  void BeforeMessage(raft* raft, const raft_message& message);
  // False: a change of members is under way. Remembers it, and goes on to refuse until it is
  // applied or gone.
  bool PermitSnapshot(const raft* raft);
  // What libraft sends, as it should be said. Its payload stays libraft's.
  raft_message Correct(const raft_message& message) const;
  // For each term and vote that could not be stored, before libraft is told so.
  static void AfterFailedWrite(raft* raft);
  // For what libraft has loaded and what it appends, which a leader does before it sends it.
  static void ClearUnwritten(const raft_entry* entries, size_t count);

 private:
  raft_configuration snapshot_;    // of the last snapshot
  raft_index snapshot_index_ = 0;  // its entry; 0: there is none
  raft_index change_index_ = 0;    // for which snapshots wait
  raft_term leaders_term_ = 0;     // of the last leader that was heard
  raft_index same_ = 0;            // so far its log and this member's are the same
};

}  // namespace weft::embed
