#include "transport/ofi/fabric_domain.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/log.h"
#include "core/status.h"

namespace weft {
namespace {

uint64_t NowNs() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch())
                                   .count());
}

}  // namespace

absl::StatusOr<FabricDomain::Objects> FabricDomain::OpenObjects(InfoPtr info,
                                                                fi_wait_obj wait_object,
                                                                size_t queue_entries) {
  Objects objects;
  fid_fabric* fabric = nullptr;
  if (int result = fi_fabric(info->fabric_attr, &fabric, nullptr); result != 0) {
    return FabricStatus(result, "fi_fabric");
  }
  objects.fabric.reset(fabric);
  fid_domain* domain = nullptr;
  if (int result = fi_domain(fabric, info.get(), &domain, nullptr); result != 0) {
    return FabricStatus(result, "fi_domain");
  }
  objects.domain.reset(domain);
  fi_cq_attr attributes = {};
  attributes.size = queue_entries;
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = wait_object;
  fid_cq* queue = nullptr;
  if (int result = fi_cq_open(domain, &attributes, &queue, nullptr); result != 0) {
    return FabricStatus(result, "fi_cq_open");
  }
  objects.queue.reset(queue);
  objects.info = std::move(info);
  return objects;
}

FabricDomain::FabricDomain(const OfiOptions& options, Objects objects, PathKind kind)
    : options_(options),
      objects_(std::move(objects)),
      inject_bytes_(objects_.info->tx_attr->inject_size),
      max_transfer_bytes_(objects_.info->ep_attr->max_msg_size),
      registrar_(objects_.domain.get(), &stats_),
      pool_(&registrar_, options.slot_bytes, options.max_pool_bytes),
      operations_(options.max_outstanding_operations) {
  path_.kind = kind;
  path_.provider =
      absl::StrCat(objects_.info->fabric_attr->prov_name, " (libfabric ", FabricVersionText(), ")");
  path_.device = objects_.info->domain_attr->name;
}

FabricDomain::~FabricDomain() { WEFT_DCHECK(stats_.links_open == 0); }

// --- slots
// ----------------------------------------------------------------------------------------

absl::Status FabricDomain::AddSlots(uint32_t send, uint32_t receive) {
  const uint32_t send_target = send_target_ + send;
  const uint32_t receive_target = std::min(receive_target_ + receive, max_posted_receives_);
  const auto sends_in_use = static_cast<uint32_t>(stats_.send_slots_in_use);
  const auto receives_posted = static_cast<uint32_t>(stats_.receives_posted);
  const uint32_t sends_missing = send_target > sends_in_use ? send_target - sends_in_use : 0;
  const uint32_t receives_missing =
      receive_target > receives_posted ? receive_target - receives_posted : 0;
  WEFT_RETURN_IF_ERROR(pool_.Reserve(sends_missing + receives_missing));
  send_target_ = send_target;
  receive_target_ += receive;
  kept_.reserve(receive_target_);
  TopUpReceives();
  CountWithheld();
  return absl::OkStatus();
}

void FabricDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  WEFT_DCHECK(send <= send_target_ && receive <= receive_target_);
  send_target_ -= send;
  receive_target_ -= receive;
  CancelSurplusReceives();
  CountWithheld();
}

SendSlot FabricDomain::AcquireSlot() {
  Slot* slot = stats_.send_slots_in_use < send_target_ ? pool_.Take(WorkKind::kSend) : nullptr;
  if (slot == nullptr) {
    send_slots_ran_out_ = true;
    return {};
  }
  ++stats_.send_slots_in_use;
  return {slot->data, slot->index};
}

Slot* FabricDomain::SlotOf(SendSlot slot) {
  Slot* found = pool_.At(slot.index);
  WEFT_CHECK(found != nullptr && found->data == slot.data && found->kind == WorkKind::kSend);
  return found;
}

void FabricDomain::TakeBack(Slot* slot) {
  pool_.Give(slot);
  --stats_.send_slots_in_use;
}

// --- receives
// -------------------------------------------------------------------------------------

uint32_t FabricDomain::ReceiveTarget() const {
  return std::min(receive_target_, max_posted_receives_);
}

// The slot goes back to the pool when the provider has no room; TopUpReceives() tries again.
bool FabricDomain::PostReceive(Slot* slot) {
  const ssize_t result = fi_recv(receive_endpoint_, slot->data, options_.slot_bytes,
                                 slot->descriptor, FI_ADDR_UNSPEC, slot->id().context());
  if (result != 0) {
    if (result == -FI_EAGAIN) ++stats_.eagain;
    pool_.Give(slot);
    return false;
  }
  slot->posted = true;
  ++stats_.receives_posted;
  return true;
}

void FabricDomain::CountWithheld() {
  const uint64_t posted = stats_.receives_posted;
  stats_.receives_withheld = receive_target_ > posted ? receive_target_ - posted : 0;
}

void FabricDomain::TopUpReceives() {
  while (stats_.receives_posted < ReceiveTarget()) {
    Slot* slot = pool_.Take(WorkKind::kReceive);
    if (slot == nullptr || !PostReceive(slot)) return;
  }
}

// Asks for receives back; they return as cancelled through the queue. One that is just being
// filled does not: its message is delivered and the slot then not posted again.
void FabricDomain::CancelSurplusReceives() {
  for (uint32_t i = 0; i < pool_.slots(); ++i) {
    if (stats_.receives_posted - cancelling_ <= ReceiveTarget()) return;
    Slot* slot = pool_.At(i);
    if (!slot->posted || slot->cancelling) continue;
    slot->cancelling = true;
    ++cancelling_;
    fi_cancel(&receive_endpoint_->fid, slot->id().context());
  }
}

// --- works
// ----------------------------------------------------------------------------------------

void FabricDomain::Join(FabricLink* link) {
  members_.PushBack(link);
  ++stats_.links_open;
}

void FabricDomain::Leave(FabricLink* link) {
  members_.Remove(link);
  --stats_.links_open;
}

void FabricDomain::ScheduleRetry(FabricLink* link) {
  if (!retries_.IsLinked(link)) retries_.PushBack(link);
}

void FabricDomain::ScheduleEvent(FabricLink* link) {
  if (!events_.IsLinked(link)) events_.PushBack(link);
}

void FabricDomain::Defer(OperationRecord* record, const absl::Status& status) {
  record->status = status;
  record->finished = true;
  deferred_.PushBack(record);
}

void FabricDomain::TakeBackFailed(Work* work, const absl::Status& why) {
  if (work->kind == WorkKind::kSend) {
    TakeBack(static_cast<Slot*>(work));
    return;
  }
  auto* record = static_cast<OperationRecord*>(work);
  if (record->parts_in_flight == 0) {
    Defer(record, why);
    return;
  }
  record->status = why;
  record->bytes = record->bytes_posted;  // no further part; the ones in flight end it
  record->link->posted_.PushBack(record);
}

// The provider is done with these works, whatever it still reports.
void FabricDomain::FinishAll(WorkList& works, const absl::Status& status) {
  while (Work* work = works.PopFront()) {
    if (work->kind == WorkKind::kSend) {
      auto* slot = static_cast<Slot*>(work);
      if (slot->posted) --sends_posted_;
      TakeBack(slot);
    } else {
      auto* record = static_cast<OperationRecord*>(work);
      // One that DrainPosted() saw complete keeps what it came to.
      const bool done = record->AllPosted() && record->parts_in_flight == 0;
      Defer(record, done ? record->status : status);
    }
  }
}

void FabricDomain::CompleteDeferredOf(const FabricLink* link) {
  WorkList mine;
  for (Work& work : deferred_) {
    if (work.link != link) continue;
    WorkList::Remove(&work);
    mine.PushBack(&work);
  }
  while (Work* work = mine.PopFront()) Complete(static_cast<OperationRecord*>(work));
}

// --- completions
// ----------------------------------------------------------------------------------

bool FabricDomain::HasCompletions() {
  return fi_cq_read(objects_.queue.get(), nullptr, 0) != -FI_EAGAIN;
}

int FabricDomain::ReadCompletions(int budget) {
  int done = 0;
  if (!kept_.empty()) {
    std::vector<fi_cq_msg_entry> kept;
    kept.swap(kept_);
    kept_.reserve(receive_target_);
    for (const fi_cq_msg_entry& entry : kept) HandleEntry(entry);
    done += static_cast<int>(kept.size());
  }
  while (done < budget) {
    const int limit = std::min(budget - done, kBatchEntries);
    const bool full = ReadBatch(limit);
    done += batch_end_;
    HandleBatch();
    if (!full) break;
  }
  return done;
}

// Fills the batch; true when there may be more.
bool FabricDomain::ReadBatch(int limit) {
  batch_next_ = batch_end_ = 0;
  const ssize_t count = fi_cq_read(objects_.queue.get(), batch_, static_cast<size_t>(limit));
  if (count > 0) batch_end_ = static_cast<int>(count);
  if (count == -FI_EAVAIL) return ReadErrors() > 0;
  if (count < 0 && count != -FI_EAGAIN) {
    WEFT_LOG_EVERY_N_SEC(kError, 1, "fi_cq_read: ", fi_strerror(static_cast<int>(-count)));
  }
  return count == limit;
}

void FabricDomain::HandleBatch() {
  while (batch_next_ < batch_end_) HandleEntry(batch_[batch_next_++]);
}

void FabricDomain::HandleEntry(const fi_cq_msg_entry& entry) {
  const WorkId id(entry.op_context);
  if (id.Is(WorkKind::kReceive)) {
    OnReceiveDone(id, entry.len);
  } else if (id.Is(WorkKind::kSend)) {
    OnSendDone(id, absl::OkStatus());
  } else if (id.Is(WorkKind::kOperation)) {
    OnPartDone(id, absl::OkStatus());
  }
}

int FabricDomain::ReadErrors() {
  OnCompletionError();
  int count = 0;
  for (; count < kMaxErrorsAtOnce; ++count) {
    char details[256];  // some providers write there without looking whether it is given
    fi_cq_err_entry entry = {};
    entry.err_data = details;
    entry.err_data_size = sizeof(details);
    if (fi_cq_readerr(objects_.queue.get(), &entry, 0) <= 0) break;
    HandleError(entry);
  }
  return count;
}

void FabricDomain::HandleError(const fi_cq_err_entry& entry) {
  const WorkId id(entry.op_context);
  const absl::Status why =
      absl::UnavailableError(absl::StrCat("the provider reports: ", fi_strerror(entry.err)));
  if (id.Is(WorkKind::kReceive)) {
    OnReceiveFailed(id);
  } else if (id.Is(WorkKind::kSend)) {
    OnSendDone(id, why);
  } else if (id.Is(WorkKind::kOperation)) {
    OnPartDone(id, why);
  }
}

// Receives are posted again right after the sink has seen them, before anything is sent that the
// sink queued: a credit never runs ahead of its receive.
void FabricDomain::OnReceiveDone(WorkId id, size_t bytes) {
  Slot* slot = pool_.Find(id);
  if (slot == nullptr || !slot->posted) return;
  if (slot->cancelling) --cancelling_;
  slot->posted = slot->cancelling = false;
  --stats_.receives_posted;
  if (bytes <= options_.slot_bytes) options_.sink->OnReceived(ByteSpan(slot->data, bytes));
  if (stats_.receives_posted < ReceiveTarget()) {
    if (!PostReceive(slot)) CountWithheld();
  } else {
    pool_.Give(slot);
  }
}

void FabricDomain::OnReceiveFailed(WorkId id) {
  Slot* slot = pool_.Find(id);
  if (slot == nullptr || !slot->posted) return;
  if (slot->cancelling) --cancelling_;
  --stats_.receives_posted;
  pool_.Give(slot);  // Poll() posts another one, if it is still wanted
  CountWithheld();
}

void FabricDomain::OnSendDone(WorkId id, const absl::Status& status) {
  Slot* slot = pool_.Find(id);
  if (slot == nullptr || slot->link == nullptr) return;
  FabricLink* link = slot->link;
  WorkList::Remove(slot);
  --sends_posted_;
  TakeBack(slot);
  if (!status.ok()) link->Fail(status);
}

void FabricDomain::OnPartDone(WorkId id, const absl::Status& status) {
  OperationRecord* record = operations_.Find(id);
  if (record == nullptr || record->finished) return;
  if (record->status.ok()) record->status = status;
  --record->parts_in_flight;
  if (record->parts_in_flight > 0 || !record->AllPosted()) return;
  if (draining_ == record->link) {
    WorkList::Remove(record);
    record->link->waiting_.PushBack(record);  // no longer posted: FinishAll() completes it
  } else if (draining_ != nullptr) {
    WorkList::Remove(record);
    Defer(record, record->status);
  } else {
    WorkList::Remove(record);
    Complete(record);
  }
}

// The record is free, and its id stale, before the user hears of it.
void FabricDomain::Complete(OperationRecord* record) {
  Operation* const user = record->user;
  const absl::Status result = record->status;
  operations_.Give(record);
  user->OnComplete(result);
}

// Entries of the batch that is being handled come first: they were read from the queue already.
void FabricDomain::DrainPosted(FabricLink* link, uint64_t limit_ns) {
  draining_ = link;
  const auto take = [this](fi_cq_msg_entry& entry) {
    if (WorkId(entry.op_context).Is(WorkKind::kReceive)) return false;
    HandleEntry(entry);
    entry.op_context = nullptr;
    return true;
  };
  for (int i = batch_next_; i < batch_end_; ++i) take(batch_[i]);
  const uint64_t give_up_ns = NowNs() + limit_ns;
  while (link->HasPostedWorks() && NowNs() < give_up_ns) {
    fi_cq_msg_entry entry;
    const ssize_t count = fi_cq_read(objects_.queue.get(), &entry, 1);
    if (count == 1 && !take(entry)) kept_.push_back(entry);
    if (count == -FI_EAVAIL) ReadErrors();
  }
  draining_ = nullptr;
}

// --- turns
// ----------------------------------------------------------------------------------------

int FabricDomain::Poll(int budget) {
  int done = DeliverDeferred();
  if (!retries_.empty()) RetryLinks();
  done += ReadCompletions(budget);
  if (stats_.receives_posted < ReceiveTarget()) {
    TopUpReceives();
    CountWithheld();
  }
  done += PollConnections();
  done += DeliverEvents();
  if (HasRoomAgain()) TellSlotsFree();
  return done;
}

bool FabricDomain::busy() const {
  return operations_.size() > 0 || !retries_.empty() || sends_posted_ > 0;
}

// A user that hears of one operation may post another, or destroy a link and with it what waits
// here: so one at a time from the list itself, and a bound.
int FabricDomain::DeliverDeferred() {
  const int limit = static_cast<int>(operations_.capacity());
  int count = 0;
  for (; count < limit && !deferred_.empty(); ++count) {
    Complete(static_cast<OperationRecord*>(deferred_.PopFront()));
  }
  return count;
}

int FabricDomain::DeliverEvents() {
  if (events_.empty()) return 0;
  IntrusiveList<FabricLink, EventTag> now;
  now.SpliceBack(events_);
  int count = 0;
  while (FabricLink* link = now.PopFront()) {
    link->DeliverEvent();
    ++count;
  }
  return count;
}

void FabricDomain::RetryLinks() {
  IntrusiveList<FabricLink, RetryTag> now;
  now.SpliceBack(retries_);
  while (FabricLink* link = now.PopFront()) {
    link->RetryWaiting();
    if (link->state() == FabricLink::State::kUp && !link->waiting_.empty()) ScheduleRetry(link);
  }
}

// After a refusal; true once for each.
bool FabricDomain::HasRoomAgain() {
  const bool slots = send_slots_ran_out_ && stats_.send_slots_in_use < send_target_;
  const bool operations = operations_ran_out_ && operations_.size() < operations_.capacity();
  if (slots) send_slots_ran_out_ = false;
  if (operations) operations_ran_out_ = false;
  return slots || operations;
}

void FabricDomain::TellSlotsFree() {
  IntrusiveList<FabricLink, MemberTag> now;
  now.SpliceBack(members_);
  while (FabricLink* link = now.PopFront()) {
    members_.PushBack(link);
    if (link->state() == FabricLink::State::kUp) link->handler_->OnSlotsFree();
  }
}

absl::StatusOr<std::unique_ptr<Region>> FabricDomain::Register(MutableByteSpan memory,
                                                               Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  WEFT_ASSIGN_OR_RETURN(RegistrationPtr registration, registrar_.Open(memory, access));
  return std::make_unique<FabricRegion>(&registrar_, std::move(registration), memory, access);
}

}  // namespace weft
