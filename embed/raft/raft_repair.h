// What libraft 0.15 does wrong with a group's configuration, put right from outside.
//
//   RaftRepair repair;
//   io->load, io->snapshot_put:   repair.KeepSnapshot(snapshot);          each one that passes
//   io->start's receive:          repair.BeforeMessage(&raft, message);   then libraft's own
//   fsm->snapshot:                if (!repair.MaySnapshot(raft)) return RAFT_BUSY;
//
// A change of members counts from when it is in a member's log, committed or not. One that a new
// leader does not have goes again, when that leader's entries take its place, and the configuration
// before it is to count. There libraft has three defects:
//
//   1. It looks for the earlier configuration in its log alone. When a snapshot has taken the place
//      of that entry, it reads a null pointer, and the process ends.
//   2. After a start the last change in the log counts as committed. When it goes, the
//      configuration stays what it was, and nothing in the log says so.
//   3. A snapshot that is taken while a change is under way has the configuration of that change,
//      and the index of the earlier one. When the change goes, it stays in the snapshot.
//
// BeforeMessage() sees which entries libraft is about to take off its log. If there is a change
// among them, it puts the configuration before it in place: that of an earlier entry, or of the
// last snapshot. MaySnapshot() lets snapshots wait for a change that is under way.
//
// Threads: libraft's. Lifetime: as the struct raft. Errors: none; where nothing earlier is known (a
//   member that joins), libraft does what it does.
// Invariants: it writes to raft::configuration, ::configuration_index and
//   ::configuration_uncommitted_index alone, whose meaning raft.h tells.
#pragma once

#include <optional>

#include "embed/raft/libraft.h"

namespace weft::embed {

class RaftRepair {
 public:
  RaftRepair();
  ~RaftRepair();
  RaftRepair(const RaftRepair&) = delete;
  RaftRepair& operator=(const RaftRepair&) = delete;

  // It takes the place of the log before it. Copies what is needed of it.
  void KeepSnapshot(const raft_snapshot& snapshot);
  void BeforeMessage(raft* raft, const raft_message& message);
  // The configuration, as it is now, is that of the state machine's last entry.
  bool MaySnapshot(const raft* raft);

 private:
  raft_configuration snapshot_;    // of the last snapshot
  raft_index snapshot_index_ = 0;  // its entry; 0: there is none
  raft_index change_index_ = 0;    // for which snapshots wait
};

}  // namespace weft::embed
