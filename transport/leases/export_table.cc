#include "transport/leases/export_table.h"

#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/leases/grant_message.h"

namespace weft {
namespace {

// Whether [offset, offset + length) lies in `size` bytes, whatever the numbers are.
bool IsInside(uint64_t offset, uint64_t length, uint64_t size) {
  return length != 0 && offset <= size && length <= size - offset;
}

uint64_t ExpiryAfter(uint64_t now_ns, uint64_t lifetime_ns) {
  if (lifetime_ns == 0 || lifetime_ns >= RegionHandle::kNoExpiry - now_ns) {
    return RegionHandle::kNoExpiry;
  }
  return now_ns + lifetime_ns;
}

}  // namespace

// --- exports ------------------------------------------------------------------------------------

TableExport::~TableExport() {
  // User: else a peer could still reach memory that goes away
  WEFT_CHECK(state_ == State::kReclaimed);
}

absl::StatusOr<RegionHandle> TableExport::Derive(uint64_t offset, uint64_t length, Rights rights,
                                                 uint32_t tenant, uint64_t lifetime_ns) const {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the export is revoked");
  if (!IsInside(offset, length, memory_.size())) {
    return absl::InvalidArgumentError(
        StrCat(length, " bytes at offset ", offset, " of an export of ", memory_.size(), " bytes"));
  }
  if (!AreRights(rights) || (rights & ~options_.rights) != 0) {
    return absl::InvalidArgumentError(
        StrCat("rights ", static_cast<int>(rights), " of an export that grants ",
               static_cast<int>(options_.rights), " at most (1 read, 2 write, 4 atomics)"));
  }
  return table_->Mint(*this, offset, length, rights, tenant,
                      ExpiryAfter(table_->clock().NowNs(), lifetime_ns));
}

bool TableExport::Revoke(uint64_t grace_ns, Operation* reclaimed) {
  // User: one Revoke(), of a bounded grace
  WEFT_CHECK(state_ == State::kOpen && grace_ns <= kMaxLeaseNs);
  state_ = State::kRevoking;
  table_->FreeSlot(*this);
  in_revoke_ = true;
  for (ExportedLease& lease : leases_) lease.Revoke(grace_ns);
  if (grace_ns == 0) {
    CloseLeases();
  } else if (!leases_.empty()) {
    table_->timers().Schedule(this, table_->clock().NowNs() + grace_ns);
  }
  in_revoke_ = false;
  reclaimed_ = reclaimed;
  if (!leases_.empty()) return false;
  BecomeReclaimed();
  return true;
}

void TableExport::CloseLeases() {
  // The last one may end this object.
  IntrusiveList<ExportedLease, ExportedLeaseTag> leases;
  leases.SpliceBack(leases_);
  while (ExportedLease* lease = leases.PopFront()) {
    leases_.PushBack(lease);
    const bool last = leases.empty();
    lease->Close();
    if (last) return;
  }
}

void TableExport::EndHolders() {
  for (ExportedLease& lease : leases_) lease.EndHolder();
}

void TableExport::AddLease(ExportedLease* lease) {
  WEFT_DCHECK(state_ == State::kOpen);  // Ours: a revoked export is found by nobody
  leases_.PushBack(lease);
  ++lease_count_;
  table_->counters_.leases_granted.Increment();
}

void TableExport::RemoveLease(ExportedLease* lease) {
  leases_.Remove(lease);
  --lease_count_;
  if (state_ != State::kRevoking || in_revoke_ || lease_count_ != 0) return;
  BecomeReclaimed();
  if (reclaimed_ != nullptr) reclaimed_->OnComplete(absl::OkStatus());
}

void TableExport::BecomeReclaimed() {
  state_ = State::kReclaimed;
  table_->timers().Cancel(this);
  table_->Forget(*this);
}

// --- the table ----------------------------------------------------------------------------------

ExportTable::ExportTable(const Clock* clock, TimerWheel* timers, CounterSet* counters,
                         uint64_t max_bytes)
    : clock_(clock), timers_(timers), counter_set_(counters), max_bytes_(max_bytes) {
  own_.code = std::make_shared<const HandleCode>();
  counter_set_->Register("memory.exports", &counters_.exports);
  counter_set_->Register("memory.exported_bytes", &counters_.exported_bytes);
  counter_set_->Register("memory.leases", &counters_.leases);
  counter_set_->Register("memory.leases_granted", &counters_.leases_granted);
  counter_set_->Register("memory.bad_handles", &counters_.bad_handles);
}

ExportTable::~ExportTable() {
  WEFT_CHECK(counters_.exports.value() == 0);  // User: an Export is destroyed before the Transport
  for (const Counter* counter : {&counters_.exports, &counters_.exported_bytes, &counters_.leases,
                                 &counters_.leases_granted, &counters_.bad_handles}) {
    counter_set_->Unregister(counter);
  }
}

absl::StatusOr<std::unique_ptr<Export>> ExportTable::Add(MutableByteSpan memory,
                                                         const ExportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckAdd(memory, options));
  WEFT_ASSIGN_OR_RETURN(const uint32_t slot, TakeSlot());
  auto entry = std::make_unique<TableExport>(this, memory, options);
  entry->slot_ = slot;
  own_.slots[slot].entry = entry.get();
  entry->handle_ =
      Mint(*entry, 0, memory.size(), options.rights, options.tenant, RegionHandle::kNoExpiry);
  Count(memory);
  return std::unique_ptr<Export>(std::move(entry));
}

absl::StatusOr<std::unique_ptr<Export>> ExportTable::AddAlike(const ExportOrigin& first,
                                                              MutableByteSpan memory,
                                                              const ExportOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckAdd(memory, options));
  const RegionHandle::Claim claim = first.handle.claim();
  if (first.code == nullptr || !first.code->Verify(first.handle) || claim.slot >= kMaxExports) {
    return absl::InvalidArgumentError("no engine of this process exports under this handle");
  }
  if (alike_.code != first.code) {
    for (const Slot& slot : alike_.slots) {
      if (slot.entry == nullptr) continue;
      return absl::FailedPreconditionError(
          "this engine exports what a third engine exports, and can join one at a time");
    }
    alike_ = {first.code, {}};
  }
  if (alike_.slots.size() <= claim.slot) alike_.slots.resize(claim.slot + 1);
  if (alike_.slots[claim.slot].entry != nullptr) {
    return absl::AlreadyExistsError("this engine exports under this handle already");
  }
  auto entry = std::make_unique<TableExport>(this, memory, options);
  entry->slot_ = claim.slot;
  entry->is_alike_ = true;
  entry->handle_ = first.handle;
  alike_.slots[claim.slot] = {entry.get(), claim.generation};
  Count(memory);
  return std::unique_ptr<Export>(std::move(entry));
}

void ExportTable::Count(MutableByteSpan memory) {
  counters_.exports.Increment();
  counters_.exported_bytes.Add(memory.size());
}

absl::Status ExportTable::CheckAdd(MutableByteSpan memory, const ExportOptions& options) const {
  if (memory.empty()) return absl::InvalidArgumentError("an export of 0 bytes");
  if (!AreRights(options.rights)) {
    return absl::InvalidArgumentError(
        StrCat("ExportOptions::rights is ", static_cast<int>(options.rights),
               "; a sum of 1 (read), 2 (write) and, with both of them, 4 (atomics) is possible"));
  }
  if (options.layout_name.size() > kMaxLayoutNameBytes) {
    return absl::InvalidArgumentError(StrCat("ExportOptions::layout_name has ",
                                             options.layout_name.size(), " bytes; up to ",
                                             kMaxLayoutNameBytes, " are possible"));
  }
  if (options.max_lease_ns < kMinLeaseNs || options.max_lease_ns > kMaxLeaseNs) {
    return absl::InvalidArgumentError(StrCat("ExportOptions::max_lease_ns is ",
                                             options.max_lease_ns, "; ", kMinLeaseNs, " to ",
                                             kMaxLeaseNs, " are possible"));
  }
  const uint64_t exported = counters_.exported_bytes.value();
  if (exported > max_bytes_ || memory.size() > max_bytes_ - exported) {
    return absl::ResourceExhaustedError(StrCat("an export of ", memory.size(), " bytes beside ",
                                               exported, "; the limit is ", max_bytes_,
                                               " (NetworkOptions::max_exported_bytes)"));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> ExportTable::TakeSlot() {
  if (free_slots_.empty()) {
    if (own_.slots.size() == kMaxExports) {
      return absl::ResourceExhaustedError(
          StrCat("all ", kMaxExports, " exports of this engine are in use"));
    }
    free_slots_.push_back(static_cast<uint32_t>(own_.slots.size()));
    own_.slots.emplace_back();
  }
  const uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  ++own_.slots[slot].generation;
  return slot;
}

void ExportTable::FreeSlot(const TableExport& entry) {
  Slot& slot = SlotsOf(entry).slots[entry.slot_];
  slot.entry = nullptr;
  if (!entry.is_alike_ && slot.generation != ~uint32_t{0}) free_slots_.push_back(entry.slot_);
}

void ExportTable::Forget(const TableExport& entry) {
  counters_.exports.Sub(1);
  counters_.exported_bytes.Sub(entry.memory().size());
}

RegionHandle ExportTable::Mint(const TableExport& entry, uint64_t offset, uint64_t length,
                               Rights rights, uint32_t tenant, uint64_t expires_ns) const {
  const Slots& slots = SlotsOf(entry);
  return slots.code->Mint({rights, entry.slot_, slots.slots[entry.slot_].generation, tenant, offset,
                           length, expires_ns});
}

TableExport* ExportTable::Find(const RegionHandle& handle, uint32_t tenant) {
  // First of all: nothing that this process has not minted is looked at.
  const Slots* slots = &own_;
  if (!own_.code->Verify(handle)) {
    if (alike_.code == nullptr || !alike_.code->Verify(handle)) return nullptr;
    slots = &alike_;
  }
  const RegionHandle::Claim claim = handle.claim();
  if (claim.slot >= slots->slots.size()) return nullptr;
  const Slot& slot = slots->slots[claim.slot];
  if (slot.entry == nullptr || slot.generation != claim.generation) return nullptr;
  if (claim.tenant != tenant || claim.expires_ns <= clock_->NowNs()) return nullptr;
  if (!IsInside(claim.offset, claim.length, slot.entry->memory().size())) return nullptr;
  if (!AreRights(claim.rights)) return nullptr;
  if ((claim.rights & ~slot.entry->options().rights) != 0) return nullptr;
  return slot.entry;
}

bool ExportTable::CountLease(uint64_t client) {
  if (!leases_.HasRoom(client, 1, kMaxEngineLeases)) return false;
  leases_.Take(client, 1);
  counters_.leases.Set(leases_.all());
  return true;
}

void ExportTable::UncountLease(uint64_t client) {
  leases_.Give(client, 1);
  counters_.leases.Set(leases_.all());
}

}  // namespace weft
