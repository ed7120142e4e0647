// The exports of one engine, as exports.h describes them: who owns what, under which handle, and
// which leases are open on it.
//
// A slot of the table has a generation that counts up at each use, and a slot whose generations are
// used up is never used again: a handle of an export that is gone is stale for ever.
//
// Beside its own slots it has those of another engine's table of this process, for memory that both
// export (Exports::AddAlike()): under the numbers, generations and code that the other one uses.
//
// Counted: memory.exports, memory.exported_bytes and memory.leases are what there is now;
// memory.leases_granted and memory.bad_handles what there has been.
//
// Threads: one engine's. Lifetime: outlives its exports, and the connections of its transport.
// Errors: a bad handle is nullptr, whatever is wrong with it.
// Invariants: an export that is kOpen is in its slot; one that is kReclaimed has no leases.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "core/clock.h"
#include "core/counters.h"
#include "core/intrusive_list.h"
#include "core/tally.h"
#include "core/timer_wheel.h"
#include "transport/exports.h"
#include "transport/leases/handle_code.h"

namespace weft {

class ExportTable;
struct ExportedLeaseTag;

// One lease, as its export sees it. It leaves the export's list when its memory is reclaimed.
class ExportedLease : public ListNode<ExportedLeaseTag> {
 public:
  // Tells the lease holder. It is closed when the grace is over, if not before.
  virtual void Revoke(uint64_t grace_ns) = 0;
  // Ends the holder's access. May leave the list inside, or later. Once closed, nothing to do.
  virtual void Close() = 0;
  // Closes the lease holder's connection, which ends the lease, later.
  virtual void EndHolder() = 0;

 protected:
  ~ExportedLease() = default;
};

class TableExport final : public Export, private Timer {
 public:
  // Of ExportTable::Add().
  TableExport(ExportTable* table, MutableByteSpan memory, const ExportOptions& options)
      : table_(table), memory_(memory), options_(options) {}
  ~TableExport() override;

  State state() const override { return state_; }
  MutableByteSpan memory() const override { return memory_; }
  RegionHandle handle() const override { return handle_; }
  absl::StatusOr<RegionHandle> Derive(uint64_t offset, uint64_t length, Rights rights,
                                      uint32_t tenant, uint64_t lifetime_ns) const override;
  bool Revoke(uint64_t grace_ns, Operation* reclaimed) override;
  void EndHolders() override;
  uint32_t leases() const override { return lease_count_.value(); }

  const ExportOptions& options() const { return options_; }

  // A lease is open on it. REQUIRES: kOpen.
  void AddLease(ExportedLease* lease);
  // Its memory is reclaimed. The last one of a revoked export may be the end of this object.
  void RemoveLease(ExportedLease* lease);

 private:
  friend class ExportTable;

  void OnTimer() override { CloseLeases(); }
  void CloseLeases();
  void BecomeReclaimed();

  ExportTable* const table_;
  const MutableByteSpan memory_;
  const ExportOptions options_;
  RegionHandle handle_;
  uint32_t slot_ = 0;
  bool is_alike_ = false;  // a slot of another table's
  State state_ = State::kOpen;
  bool in_revoke_ = false;
  Tally<uint32_t> lease_count_;
  IntrusiveList<ExportedLease, ExportedLeaseTag> leases_;
  Operation* reclaimed_ = nullptr;
};

class ExportTable final : public Exports {
 public:
  // `clock`, `timers` and `counters` are the engine's. `max_bytes`: of all exports together.
  ExportTable(const Clock* clock, TimerWheel* timers, CounterSet* counters, uint64_t max_bytes);
  ~ExportTable();
  ExportTable(const ExportTable&) = delete;
  ExportTable& operator=(const ExportTable&) = delete;

  absl::StatusOr<std::unique_ptr<Export>> Add(MutableByteSpan memory,
                                              const ExportOptions& options) override;
  absl::StatusOr<std::unique_ptr<Export>> AddAlike(const ExportOrigin& first,
                                                   MutableByteSpan memory,
                                                   const ExportOptions& options) override;
  ExportOrigin OriginOf(const Export& exported) const override {
    return {exported.handle(), own_.code};
  }

  // What `handle` names, if it is good in all respects for a connection of `tenant`.
  TableExport* Find(const RegionHandle& handle, uint32_t tenant);
  void CountBadHandle() { counters_.bad_handles.Increment(); }

  // One more open lease of this engine, for this client (PathInfo::client; those that this side has
  // dialed are one). False: there is none for it, of kMaxEngineLeases (client_shares.h).
  [[nodiscard]] bool CountLease(uint64_t client);
  void UncountLease(uint64_t client);

  const HandleCode& code() const { return *own_.code; }
  // That the handles of this export are made with.
  const HandleCode& code(const TableExport& entry) const { return *SlotsOf(entry).code; }
  const Clock& clock() const { return *clock_; }
  TimerWheel& timers() { return *timers_; }

  // Leases of all connections of an engine: half of the regions that one engine can have open for
  // its peers on shared memory (4096), so that large messages always find a place beside them.
  static constexpr uint32_t kMaxEngineLeases = 2048;

 private:
  friend class TableExport;

  struct Slot {
    TableExport* entry = nullptr;  // null: free
    uint32_t generation = 0;       // of its last use; 0: none
  };
  struct Slots {
    std::shared_ptr<const HandleCode> code;  // null: there are none
    std::vector<Slot> slots;                 // grows to kMaxExports
  };
  struct Counters {
    Counter exports;
    Counter exported_bytes;
    Counter leases;
    Counter leases_granted;
    Counter bad_handles;
  };

  absl::Status CheckAdd(MutableByteSpan memory, const ExportOptions& options) const;
  // RESOURCE_EXHAUSTED: all of them are in use.
  absl::StatusOr<uint32_t> TakeSlot();
  Slots& SlotsOf(const TableExport& entry) { return entry.is_alike_ ? alike_ : own_; }
  const Slots& SlotsOf(const TableExport& entry) const { return entry.is_alike_ ? alike_ : own_; }
  void Count(MutableByteSpan memory);
  // Handles of it are bad from now on.
  void FreeSlot(const TableExport& entry);
  RegionHandle Mint(const TableExport& entry, uint64_t offset, uint64_t length, Rights rights,
                    uint32_t tenant, uint64_t expires_ns) const;
  void Forget(const TableExport& entry);

  const Clock* const clock_;
  TimerWheel* const timers_;
  CounterSet* const counter_set_;
  const uint64_t max_bytes_;
  Slots own_;
  Slots alike_;
  std::vector<uint32_t> free_slots_;  // of own_
  ClientShares leases_;               // that are open
  Counters counters_;
};

}  // namespace weft
