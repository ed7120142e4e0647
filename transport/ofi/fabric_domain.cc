#include "transport/ofi/fabric_domain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/inline.h"
#include "core/log.h"
#include "core/status.h"

namespace weft {
namespace {

uint64_t LargestKey(size_t key_bytes) {
  return key_bytes >= sizeof(uint64_t) ? ~uint64_t{0} : (uint64_t{1} << (8 * key_bytes)) - 1;
}

uint32_t MostPieces(const fi_tx_attr& attributes) {
  const size_t least = std::min(attributes.iov_limit, attributes.rma_iov_limit);
  return static_cast<uint32_t>(std::clamp(least, size_t{1}, size_t{FabricLink::kMostPieces}));
}

}  // namespace

FabricDomain::FabricDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects,
                           const FabricTraits& traits)
    : options_(options),
      traits_(traits),
      objects_(std::move(objects)),
      inject_bytes_(traits.injects ? objects_->info->tx_attr->inject_size : 0),
      max_transfer_bytes_(objects_->info->ep_attr->max_msg_size),
      max_key_(LargestKey(objects_->info->domain_attr->mr_key_size)),
      max_pieces_(traits.groups_operations ? MostPieces(*objects_->info->tx_attr) : 1),
      has_wide_(options.wide_slot_bytes > options.slot_bytes),
      registrar_(objects_->domain.get(), *objects_->info, &stats_),
      pool_(&registrar_, options.slot_bytes,
            options.max_pool_bytes - (has_wide_ ? options.max_pool_bytes / kWideShare : 0)),
      wide_(&registrar_, has_wide_ ? options.wide_slot_bytes : options.slot_bytes,
            has_wide_ ? options.max_pool_bytes / kWideShare : 0, kFirstWideIndex),
      receives_(objects_->shared_receive.get(), &receive_pool(), options.sink, traits.receives,
                &stats_),
      operations_(options.max_outstanding_operations),
      joins_(options.max_outstanding_operations) {
  path_.kind = traits.kind;
  path_.link = traits.link;
  path_.provider = absl::StrCat(objects_->info->fabric_attr->prov_name, " (libfabric ",
                                FabricVersionText(), ")");
  path_.device = objects_->info->domain_attr->name;
}

FabricDomain::~FabricDomain() { WEFT_DCHECK(stats_.links_open == 0); }

// --- slots -------------------------------------------------------------------------------------

absl::Status FabricDomain::AddSlots(uint32_t send, uint32_t receive) {
  WEFT_RETURN_IF_ERROR(receives_.CheckRoom(receive));
  const uint64_t receives_missing = receives_.MissingFor(receive);
  const uint64_t kept = uint64_t{send_slots_kept_} + std::min(send, kFirstSendSlots);
  const uint64_t sends_missing =
      kept > stats_.send_slots_in_use ? kept - stats_.send_slots_in_use : 0;
  if (has_wide_) WEFT_RETURN_IF_ERROR(wide_.Reserve(receives_missing));
  WEFT_RETURN_IF_ERROR(pool_.Reserve(sends_missing + (has_wide_ ? 0 : receives_missing)));
  send_target_ += send;
  send_slots_kept_ += std::min(send, kFirstSendSlots);
  if (receives_.Add(receive)) return absl::OkStatus();
  RemoveSlots(send, receive);
  return absl::ResourceExhaustedError("the provider does not take more receives now");
}

void FabricDomain::RemoveSlots(uint32_t send, uint32_t receive) {
  WEFT_DCHECK(send <= send_target_);
  send_target_ -= send;
  send_slots_kept_ -= std::min(send, kFirstSendSlots);
  receives_.Remove(receive);
}

SendSlot FabricDomain::AcquireFrom(SlotPool& pool) {
  Slot* slot = TakeSendSlot(pool);
  if (slot == nullptr) {
    (&pool == &wide_ ? wide_slots_ran_out_ : send_slots_ran_out_) = true;
    return {};
  }
  ++stats_.send_slots_in_use;
  return {slot->data, slot};
}

Slot* FabricDomain::TakeSendSlot(SlotPool& pool) {
  if (stats_.send_slots_in_use >= send_target_) return nullptr;
  Slot* slot = pool.Take(WorkKind::kSend);
  if (slot != nullptr || !pool.has_room()) return slot;
  // More are in use than ever before.
  return pool.Reserve(1).ok() ? pool.Take(WorkKind::kSend) : nullptr;
}

void FabricDomain::TakeBack(Slot* slot) {
  if (IsWide(slot->index)) [[unlikely]] {
    if (slot->link != nullptr && slot->link->WideSent()) link_has_room_ = true;
    wide_.Give(slot);
  } else {
    pool_.Give(slot);
  }
  --stats_.send_slots_in_use;
}

// --- works -------------------------------------------------------------------------------------

void FabricDomain::Join(FabricLink* link) {
  members_.PushBack(link);
  ++stats_.links_open;
}

void FabricDomain::Leave(FabricLink* link) {
  members_.Remove(link);
  --stats_.links_open;
}

void FabricDomain::UseNext(FabricLink* link) {
  if (last_used_ != nullptr) last_used_->GoCold();
  last_used_ = link;
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
      if (slot->posted) CountFlight(slot->link, IsAwaited(*slot), -1);
      TakeBack(slot);
    } else {
      auto* record = static_cast<OperationRecord*>(work);
      const auto parts = static_cast<int>(std::exchange(record->parts_in_flight, 0));
      CountFlight(record->link, /*awaited=*/true, -parts);
      record->next_piece = nullptr;  // all of them are here
      Defer(record, status);
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

// --- completions -------------------------------------------------------------------------------

bool FabricDomain::HasCompletions() {
  bool found =
      objects_->groups == nullptr && fi_cq_read(objects_->queue.get(), nullptr, 0) != -FI_EAGAIN;
  if (objects_->near_queue.get() == nullptr) return found;
  WakeNear();  // whatever is taken off its sockets here waits for the next turn
  return !objects_->near_queue.IsEmpty() || found;
}

void FabricDomain::WakeNear() {
  if (objects_->groups != nullptr) objects_->groups->WakeNear();
}

void FabricDomain::ExpectCompletions() {
  look_.Expect();
  near_look_.Expect();
}

absl::StatusOr<EndpointQueues> FabricDomain::JoinQueues() {
  if (objects_->near_queue.get() != nullptr && near_look_.endpoints() < options_.near_links) {
    near_look_.Join();
    WakeNear();
    return EndpointQueues{objects_->near_queue.get(), objects_->near_queue.get(), nullptr};
  }
  EndpointQueues queues = {objects_->queue.get(), objects_->queue.get(), nullptr};
  if (objects_->groups != nullptr) {
    WEFT_ASSIGN_OR_RETURN(queues.seat, objects_->groups->Join());
    queues.receives = queues.seat->group->receives.get();
    queues.sends = queues.seat->group->sends->queue.get();
  }
  look_.Join();
  return queues;
}

void FabricDomain::LeaveQueues(const EndpointQueues& queues) {
  const bool near = queues.receives == objects_->near_queue.get();
  (near ? near_look_ : look_).Leave();
  WakeNear();
  if (queues.seat != nullptr) QueueGroups::Leave(queues.seat);
}

int FabricDomain::ReadErrors(fid_cq* queue) {
  OnCompletionError();
  int count = 0;
  for (; count < kMaxErrorsAtOnce; ++count) {
    char details[256];  // some providers write there without looking whether it is given
    fi_cq_err_entry entry = {};
    entry.err_data = details;
    entry.err_data_size = sizeof(details);
    if (fi_cq_readerr(queue, &entry, 0) <= 0) break;
    HandleError(queue, entry);
  }
  return count;
}

// The provider's own words, where it has more of them: "transport retry counter exceeded".
std::string FabricDomain::DetailOf(fid_cq* queue, const fi_cq_err_entry& entry) {
  if (entry.prov_errno == 0 || entry.prov_errno == entry.err) return "";
  char text[128] = {};
  const char* words = fi_cq_strerror(queue, entry.prov_errno, nullptr, text, sizeof(text) - 1);
  if (words == nullptr || *words == '\0') return "";
  return absl::StrCat(" (", words, ")");
}

void FabricDomain::HandleError(fid_cq* queue, const fi_cq_err_entry& entry) {
  const WorkId id(entry.op_context);
  const absl::Status why = absl::UnavailableError(
      absl::StrCat("the provider reports: ", fi_strerror(entry.err), DetailOf(queue, entry)));
  if (id.Is(WorkKind::kReceive)) {
    receives_.OnFailed(id, entry.err);
  } else if (id.Is(WorkKind::kSend)) {
    OnSendDone(id, why);
  } else if (id.Is(WorkKind::kOperation)) {
    OnPartDone(id, why);
  }
}

void FabricDomain::OnSendDone(WorkId id, const absl::Status& status) {
  Slot* slot = PoolOf(id.index()).Find(id);
  if (slot == nullptr || slot->link == nullptr) return;
  FabricLink* const link = slot->link;
  Operation* const fence = slot->fence;
  WorkList::Remove(slot);
  CountFlight(link, IsAwaited(*slot), -1);
  TakeBack(slot);
  if (!status.ok()) return link->Fail(status);
  if (fence != nullptr) fence->OnComplete(absl::OkStatus());
}

void FabricDomain::OnPartDone(WorkId id, const absl::Status& status) {
  OperationRecord* record = operations_.Find(id);
  if (record == nullptr || record->finished) return;
  if (record->status.ok()) record->status = status;
  --record->parts_in_flight;
  CountFlight(record->link, /*awaited=*/true, -1);
  if (!status.ok() && traits_.errors_end_links) record->link->Fail(status);
  if (record->parts_in_flight > 0 || !record->AllPosted()) return;
  record->Separate([&](OperationRecord* piece) {
    WorkList::Remove(piece);
    Defer(piece, status);
  });
  WorkList::Remove(record);
  Complete(record);
}

// The record is free, and its id stale, before the user hears of it.
void FabricDomain::Complete(OperationRecord* record) {
  Operation* const user = record->user;
  const absl::Status result = record->status;
  operations_.Give(record);
  user->OnComplete(result);
}

WEFT_INLINE void FabricDomain::HandleEntry(const fi_cq_msg_entry& entry) {
  const WorkId id(entry.op_context);
  if (id.Is(WorkKind::kReceive)) [[likely]] {
    receives_.OnDone(id, entry.len);
  } else if (id.Is(WorkKind::kSend)) {
    OnSendDone(id, absl::OkStatus());
  } else if (id.Is(WorkKind::kOperation)) {
    OnPartDone(id, absl::OkStatus());
  }
}

int FabricDomain::ReadQueue(fid_cq* queue, int budget) {
  fi_cq_msg_entry entries[kBatchEntries];
  int done = 0;
  while (done < budget) {
    const int limit = std::min(budget - done, kBatchEntries);
    const auto count = static_cast<int>(fi_cq_read(queue, entries, static_cast<size_t>(limit)));
    if (count > 0) {
      for (int i = 0; i < count; ++i) HandleEntry(entries[i]);
      done += count;
      if (count < limit) break;
    } else if (count == -FI_EAVAIL) {
      const int errors = ReadErrors(queue);
      if (errors == 0) break;
      done += errors;
    } else {
      if (count != -FI_EAGAIN) {
        WEFT_LOG_EVERY_N_SEC(kError, 1, "fi_cq_read: ", fi_strerror(-count));
      }
      break;
    }
  }
  return done;
}

int FabricDomain::ReadGroups(int budget) {
  if (look_.endpoints() == 0) return 0;
  objects_->groups->FindReady();
  const bool hurry = send_slots_ran_out_ || wide_slots_ran_out_ || !HasFlightRoom();
  return objects_->groups->ReadDue(budget, hurry, near_backlog_, [this](fid_cq* queue, int limit) {
    return ReadQueue(queue, limit);
  });
}

// What peers read and write here goes on without a word.
bool FabricDomain::MayNeedProgress() const { return busy() || registrar_.remote_open() > 0; }

// Only beside groups, whose epoll is looked at in each turn. `awaited`: completions, which no
// socket tells of, among other things.
bool FabricDomain::NearRests(bool awaited) const {
  return look_.endpoints() > 0 && !awaited && objects_->groups->near_rests();
}

WEFT_INLINE int FabricDomain::ReadCompletions(int budget) {
  const bool awaited = traits_.looks_cost && MayNeedProgress();
  int done = 0;
  if (!traits_.looks_cost || look_.IsDue(awaited)) {
    done =
        objects_->groups != nullptr ? ReadGroups(budget) : ReadQueue(objects_->queue.get(), budget);
    look_.Looked(done > 0);
  }
  if (objects_->near_queue.get() != nullptr && !NearRests(awaited) && near_look_.IsDue(awaited)) {
    const int near = ReadQueue(objects_->near_queue.get(), budget);
    near_look_.Looked(near > 0);
    near_backlog_ = near >= budget;
    if (look_.endpoints() > 0 && objects_->groups->NearLooked(near > 0)) ExpectCompletions();
    done += near;
  }
  finds_ += done > 0;
  return done;
}

// --- turns -------------------------------------------------------------------------------------

int FabricDomain::Poll(int budget) {
  int done = deferred_.empty() ? 0 : DeliverDeferred(budget);
  if (!retries_.empty()) [[unlikely]]
    RetryLinks();
  const int completions = ReadCompletions(budget);
  done += completions;
  if (max_pieces_ > 1 && !deferred_.empty()) [[unlikely]]
    done += DeliverDeferred(budget);  // the pieces of what has completed
  if (receives_.lacks(/*idle=*/completions == 0)) [[unlikely]]
    receives_.TopUp();
  if (--turns_to_connections_ == 0) [[unlikely]] {
    turns_to_connections_ = kConnectionTurns;
    done += PollConnections(completions > 0);
  }
  if (!events_.empty()) [[unlikely]]
    done += DeliverEvents();
  if (any_ran_out() && HasRoomAgain()) [[unlikely]]
    TellSlotsFree();
  return done;
}

bool FabricDomain::busy() const {
  return operations_.size() > 0 || !retries_.empty() || in_flight_ > 0;
}

// A user that hears of one operation may post another, or destroy a link and with it what waits
// here: so one at a time from the list itself, and a bound. (On shm each that is posted is copied
// at once: without the bound a user that posts the next from the last would be the whole turn.)
int FabricDomain::DeliverDeferred(int budget) {
  int count = 0;
  for (; count < budget && !deferred_.empty(); ++count) {
    Complete(static_cast<OperationRecord*>(deferred_.PopFront()));
  }
  return count;
}

int FabricDomain::DeliverEvents() {
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
  more_to_do_ = false;
  IntrusiveList<FabricLink, RetryTag> now;
  now.SpliceBack(retries_);
  while (FabricLink* link = now.PopFront()) {
    link->RetryWaiting();
    if (link->state() == FabricLink::State::kUp && !link->waiting_.empty()) ScheduleRetry(link);
  }
}

// After a refusal; true once for each.
bool FabricDomain::HasRoomAgain() {
  const bool slots =
      send_slots_ran_out_ && stats_.send_slots_in_use < send_target_ && pool_.has_room();
  const bool wide =
      wide_slots_ran_out_ && stats_.send_slots_in_use < send_target_ && wide_.has_room();
  const bool operations = operations_ran_out_ && operations_.size() < operations_.capacity();
  if (slots) send_slots_ran_out_ = false;
  if (wide) wide_slots_ran_out_ = false;
  if (operations) operations_ran_out_ = false;
  return std::exchange(link_has_room_, false) || slots || wide || operations;
}

void FabricDomain::TellSlotsFree() {
  IntrusiveList<FabricLink, MemberTag> now;
  now.SpliceBack(members_);
  while (FabricLink* link = now.PopFront()) {
    members_.PushBack(link);
    if (link->state() == FabricLink::State::kUp) link->life_.handler()->OnSlotsFree();
  }
}

absl::StatusOr<std::unique_ptr<Region>> FabricDomain::Register(MutableByteSpan memory,
                                                               Access access) {
  if (memory.empty()) return absl::InvalidArgumentError("a region of 0 bytes cannot be registered");
  return FabricRegion::Open(&registrar_, memory, access);
}

}  // namespace weft
