#include "transport/ofi/fabric_link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/inline.h"
#include "core/status.h"
#include "transport/ofi/fabric_parts.h"

namespace weft {

FabricLink::FabricLink(FabricParts* parts, LinkHandler* handler) : parts_(parts), life_(handler) {
  parts_->links.Join(this);
}

FabricLink::~FabricLink() {
  WEFT_CHECK(detached_);  // by the derived destructor, which still knows how to stop its provider
  parts_->operations.CompleteOf(this);
  parts_->links.Leave(this);
}

// --- works -------------------------------------------------------------------------------------

// Behind a plain send nobody waits. A link has few wide slots, so that the next waits for them.
bool FabricLink::IsAwaited(const Slot& slot) {
  return slot.fence != nullptr || DomainSlots::IsWide(slot.index);
}

WEFT_INLINE void FabricLink::CountFlight(bool awaited, int change) {
  parts_->queues.CountFlight(group_, awaited, change);
}

// (A slot that was never sent has no link, and does not count among its wide ones.)
WEFT_INLINE void FabricLink::TakeBack(Slot* slot) {
  if (DomainSlots::IsWide(slot->index) && slot->link != nullptr && WideSent()) [[unlikely]]
    parts_->slots.NoteRoomForWide();
  parts_->slots.Give(slot);
}

// Something was posted to the link's endpoint.
WEFT_INLINE void FabricLink::OnPosted() {
  if (parts_->objects->groups == nullptr) return;
  parts_->queues.OnPosted(group_);
  if (group_ == nullptr || parts_->last_used == this) return;
  if (parts_->last_used != nullptr) parts_->last_used->GoCold();
  parts_->last_used = this;
}

// --- posting -----------------------------------------------------------------------------------

SendSlot FabricLink::TakeSlot(uint32_t /*least*/) {
  return HasRoom() ? parts_->slots.Acquire() : SendSlot();
}

absl::Status FabricLink::SendFence(const SendSlot& slot, uint32_t bytes, Operation* passed) {
  Slot* taken = DomainSlots::SlotOf(slot);
  WEFT_DCHECK(bytes > 0 && bytes <= parts_->slots.widest_bytes());
  if (!life_.up()) [[unlikely]] {
    TakeBack(taken);
    return life_.CheckUp();
  }
  taken->link = this;
  wide_sends_ += DomainSlots::IsWide(taken->index);
  taken->bytes = bytes;
  taken->fence = passed;
  if (!waiting_.empty()) [[unlikely]]
    return Submit(taken);
  const int result = PostSend(taken);  // as Post() does
  OnPosted();
  return result == 0 ? absl::OkStatus() : OnRefused(taken, result);
}

absl::StatusOr<Posted> FabricLink::Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                        Operation* op) {
  if (kind == TransferKind::kWriteAcknowledged && !has_fence()) kind = TransferKind::kWrite;
  return transfers.size() == 1 ? PostOne(kind, transfers[0], op) : PostBatch(kind, transfers, op);
}

// The local end's descriptor.
absl::StatusOr<void*> FabricLink::Check(TransferKind kind, const Transfer& transfer) const {
  const RemoteSpan& remote = transfer.remote;
  const auto* region = dynamic_cast<const FabricRegion*>(transfer.local);
  if (region == nullptr || !region->BelongsTo(&parts_->registrar)) {
    return absl::InvalidArgumentError("the local region was registered for another path or engine");
  }
  const size_t room = region->memory().size();
  if (transfer.local_offset > room || remote.length > room - transfer.local_offset) {
    return absl::InvalidArgumentError(absl::StrCat("local range [", transfer.local_offset, ", +",
                                                   remote.length, ") exceeds the region of ", room,
                                                   " bytes"));
  }
  if (remote.key > parts_->max_key) {
    return absl::InvalidArgumentError(
        absl::StrCat("remote key ", remote.key, " is longer than this path's keys are"));
  }
  if (remote.offset + remote.length < remote.offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("remote range [", remote.offset, ", +", remote.length, ") wraps around"));
  }
  if (kind == TransferKind::kRead) return region->SinkDescriptor();
  return region->source_descriptor();
}

void FabricLink::Fill(OperationRecord* record, TransferKind kind, const Transfer& transfer,
                      void* descriptor, Operation* op) {
  record->link = this;
  record->user = op;
  record->local = transfer.local->memory().data() + transfer.local_offset;
  record->descriptor = descriptor;
  record->remote_offset = transfer.remote.offset;
  record->remote_key = transfer.remote.key;
  record->bytes = transfer.remote.length;
  record->bytes_posted = 0;
  record->parts_in_flight = 0;
  record->operation = kind;
}

absl::Status FabricLink::TooManyOperations() {
  return absl::ResourceExhaustedError(absl::StrCat(
      parts_->operations.capacity(), " one-sided operations are outstanding in this domain"));
}

absl::StatusOr<Posted> FabricLink::PostOne(TransferKind kind, const Transfer& transfer,
                                           Operation* op) {
  WEFT_ASSIGN_OR_RETURN(void* const descriptor, Check(kind, transfer));
  if (absl::Status up = life_.CheckUp(); !up.ok()) return up;
  if (!parts_->operations.HasRoomFor(1)) return TooManyOperations();
  OperationRecord* const record = parts_->operations.Take();
  Fill(record, kind, transfer, descriptor, op);
  SubmitOperation(record);
  return Posted::kPending;
}

absl::StatusOr<Posted> FabricLink::PostBatch(TransferKind kind,
                                             absl::Span<const Transfer> transfers, Operation* op) {
  const size_t count = transfers.size();
  WEFT_DCHECK(count >= 1 && count <= kMaxBatchTransfers);
  std::array<void*, kMaxBatchTransfers> descriptors;
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(descriptors[i], Check(kind, transfers[i]));
  }
  if (absl::Status up = life_.CheckUp(); !up.ok()) return up;
  OutstandingOperations& operations = parts_->operations;
  if (!operations.HasRoomFor(count)) return TooManyOperations();
  Operation* const join = operations.Join(op, static_cast<uint32_t>(count));
  gathering_ = parts_->max_pieces > 1;
  for (size_t i = 0; i < count; ++i) {
    OperationRecord* const record = operations.Take();
    Fill(record, kind, transfers[i], descriptors[i], join);
    SubmitOperation(record);
  }
  if (std::exchange(gathering_, false)) Retry();
  return Posted::kPending;
}

bool FabricLink::MayShare(const OperationRecord& record) const {
  return record.bytes <= kSharedBytes && record.bytes_posted == 0 &&
         record.operation != TransferKind::kWriteAcknowledged;
}

// A small operation behind others that are under way waits for the next turn, and whoever comes
// until then leaves with it. A lone one leaves at once.
bool FabricLink::AwaitsOthers(const Work& work) const {
  if (parts_->max_pieces == 1 || work.kind != WorkKind::kOperation) return false;
  if (!MayShare(static_cast<const OperationRecord&>(work))) return false;
  return gathering_ || (!posted_.empty() && posted_.Front() != posted_.Back());
}

// An accepted post reports through the operation, whatever becomes of the link.
void FabricLink::SubmitOperation(OperationRecord* record) {
  if (record->bytes == 0) {  // nothing to move, and providers differ in what they make of it
    parts_->operations.Defer(record, absl::OkStatus());
  } else if (!life_.up()) {  // since an earlier piece of the same batch
    parts_->operations.Defer(record, absl::UnavailableError("the link is down"));
  } else {
    Submit(record).IgnoreError();
  }
}

absl::Status FabricLink::Submit(Work* work) {
  if (waiting_.empty() && AwaitsOthers(*work)) return OnRefused(work, kMoreToDo);
  if (waiting_.empty()) {
    const int result = Post(work);
    return result == 0 ? absl::OkStatus() : OnRefused(work, result);
  }
  Wait(work);
  return absl::OkStatus();
}

// By the provider, or not given to it yet.
absl::Status FabricLink::OnRefused(Work* work, int result) {
  if (result < 0 && result != -FI_EAGAIN) {
    absl::Status why = FabricStatus(result, "posting to the provider");
    TakeBackFailed(work, why);
    Fail(why);
    return why;
  }
  CountDelay(result);
  Wait(work);
  return absl::OkStatus();
}

void FabricLink::Wait(Work* work) {
  waiting_.PushBack(work);
  parts_->links.ScheduleRetry(this);
}

void FabricLink::Retry() {
  int result = 0;
  while (result == 0 && life_.up() && !waiting_.empty()) {
    Work* const work = waiting_.PopFront();
    result = Post(work);
    if (result == -FI_EAGAIN || result == kMoreToDo) {
      CountDelay(result);
      waiting_.PushFront(work);
    } else if (result < 0) {
      const absl::Status why = FabricStatus(result, "posting to the provider");
      TakeBackFailed(work, why);
      Fail(why);
    }
  }
  if (life_.up() && !waiting_.empty()) parts_->links.ScheduleRetry(this);
}

void FabricLink::CountDelay(int result) {
  if (result == kMoreToDo) {
    parts_->links.NoteMoreToDo();
  } else {
    ++parts_->stats.eagain;
  }
}

// What is to be done besides comes behind the post: the message is on its way then.
int FabricLink::Post(Work* work) {
  const int result = PostWork(work);
  OnPosted();
  return result;
}

int FabricLink::PostWork(Work* work) {
  if (work->kind == WorkKind::kSend) return PostSend(static_cast<Slot*>(work));
  auto* const record = static_cast<OperationRecord*>(work);
  const bool together = parts_->max_pieces > 1 && !waiting_.empty() && MayShare(*record);
  return together ? PostTogether(record) : PostOperation(record);
}

// With those like it that wait right behind it.
int FabricLink::PostTogether(OperationRecord* first) {
  if (!parts_->queues.HasFlightRoom()) return -FI_EAGAIN;
  std::array<OperationRecord*, kMostPieces> pieces = {first};
  uint32_t count = 1;
  for (Work& next : waiting_) {
    if (count == parts_->max_pieces || next.kind != WorkKind::kOperation) break;
    auto& record = static_cast<OperationRecord&>(next);
    if (record.operation != first->operation || !MayShare(record)) break;
    pieces[count++] = &record;
  }
  std::array<iovec, kMostPieces> local;
  std::array<void*, kMostPieces> descriptors;
  std::array<fi_rma_iov, kMostPieces> remote;
  for (uint32_t i = 0; i < count; ++i) {
    const OperationRecord& piece = *pieces[i];
    local[i] = {piece.local, piece.bytes};
    descriptors[i] = piece.descriptor;
    remote[i] = {piece.remote_offset, piece.bytes, piece.remote_key};
  }
  fi_msg_rma message = {};
  message.msg_iov = local.data();
  message.desc = descriptors.data();
  message.iov_count = count;
  message.addr = destination_;
  message.rma_iov = remote.data();
  message.rma_iov_count = count;
  message.context = parts_->operations.IdOf(first).context();
  const ssize_t result = first->operation == TransferKind::kRead
                             ? fi_readmsg(endpoint_, &message, FI_COMPLETION)
                             : fi_writemsg(endpoint_, &message, FI_COMPLETION);
  if (result != 0) return static_cast<int>(result);
  ++first->parts_in_flight;
  CountFlight(/*awaited=*/true, +1);
  for (uint32_t i = 0; i < count; ++i) {
    if (i > 0) {
      WorkList::Remove(pieces[i]);
      pieces[i - 1]->next_piece = pieces[i];
    }
    pieces[i]->bytes_posted = pieces[i]->bytes;
    posted_.PushBack(pieces[i]);
  }
  return 0;
}

// Up to the provider's inject size the bytes are copied at once: no completion to read, and the
// slot is free again. (After a shutdown tcp loses an injected message silently. So would a sent
// one be lost; the link's end covers both.)
WEFT_INLINE int FabricLink::PostSend(Slot* slot) {
  if (slot->fence == nullptr && slot->bytes <= parts_->inject_bytes) {
    const auto result =
        static_cast<int>(fi_inject(endpoint_, slot->data, slot->bytes, destination_));
    if (result == 0) TakeBack(slot);
    return result;
  }
  if (!parts_->queues.HasFlightRoom()) return -FI_EAGAIN;
  const int result =
      slot->fence != nullptr
          ? PostFence(slot)
          : static_cast<int>(fi_send(endpoint_, slot->data, slot->bytes, slot->descriptor,
                                     destination_, slot->id().context()));
  if (result == 0) {
    posted_.PushBack(slot);
    slot->posted = true;
    CountFlight(IsAwaited(*slot), +1);
  }
  return result;
}

// The peer's provider acknowledges the message on the stream that its writes come by, and ours
// takes what comes by it one after the other: so a write that had found its region before that was
// closed has come to its end when the acknowledgement is here. And answers to what the peer had
// asked to read are on their way before this message is. Neither depends on what the peer's program
// does.
int FabricLink::PostFence(Slot* slot) {
  const iovec memory = {slot->data, slot->bytes};
  fi_msg message = {};
  message.msg_iov = &memory;
  message.desc = &slot->descriptor;
  message.iov_count = 1;
  message.addr = destination_;
  message.context = slot->id().context();
  return static_cast<int>(fi_sendmsg(endpoint_, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

int FabricLink::PostOperation(OperationRecord* record) {
  while (!record->AllPosted()) {
    if (!parts_->queues.HasFlightRoom()) return -FI_EAGAIN;
    const uint64_t part =
        std::min(record->bytes - record->bytes_posted, parts_->max_transfer_bytes);
    if (const int result = PostPart(*record, part); result != 0) return result;
    record->bytes_posted += part;
    ++record->parts_in_flight;
    CountFlight(/*awaited=*/true, +1);
  }
  posted_.PushBack(record);
  return 0;
}

// The next `bytes` of it.
int FabricLink::PostPart(const OperationRecord& record, uint64_t bytes) {
  std::byte* const local = record.local + record.bytes_posted;
  const uint64_t remote = record.remote_offset + record.bytes_posted;
  void* const context = parts_->operations.IdOf(&record).context();
  switch (record.operation) {
    case TransferKind::kRead:
      return static_cast<int>(fi_read(endpoint_, local, bytes, record.descriptor, destination_,
                                      remote, record.remote_key, context));
    case TransferKind::kWrite:
      return static_cast<int>(fi_write(endpoint_, local, bytes, record.descriptor, destination_,
                                       remote, record.remote_key, context));
    case TransferKind::kWriteAcknowledged:
      break;
  }
  const iovec here = {local, bytes};
  void* descriptor = record.descriptor;
  const fi_rma_iov there = {remote, bytes, record.remote_key};
  fi_msg_rma message = {};
  message.msg_iov = &here;
  message.desc = &descriptor;
  message.iov_count = 1;
  message.addr = destination_;
  message.rma_iov = &there;
  message.rma_iov_count = 1;
  message.context = context;
  return static_cast<int>(fi_writemsg(endpoint_, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

// --- reclaiming --------------------------------------------------------------------------------

bool FabricLink::Reclaim(std::unique_ptr<Region> region) {
  auto* const own = dynamic_cast<FabricRegion*>(region.get());
  if (own == nullptr) return false;
  own->Close();
  return parts_->traits.closing_reclaims;
}

bool FabricLink::has_fence() const { return parts_->traits.fences; }

// --- events ------------------------------------------------------------------------------------

void FabricLink::BecomeUp() {
  if (life_.BecomeUp()) parts_->links.ScheduleEvent(this);
}

void FabricLink::Fail(const absl::Status& why) {
  if (life_.Fail(absl::UnavailableError(why.message()))) parts_->links.ScheduleEvent(this);
}

void FabricLink::DeliverEvent() {
  life_.Deliver([this] { parts_->links.ScheduleEvent(this); });
}

// --- completions -------------------------------------------------------------------------------

void FabricLink::OnSendDone(Slot* slot, const absl::Status& status) {
  Operation* const fence = slot->fence;
  WorkList::Remove(slot);
  CountFlight(IsAwaited(*slot), -1);
  TakeBack(slot);
  if (!status.ok()) return Fail(status);
  if (fence != nullptr) fence->OnComplete(absl::OkStatus());
}

void FabricLink::OnPartDone(OperationRecord* record, const absl::Status& status) {
  if (record->status.ok()) record->status = status;
  --record->parts_in_flight;
  CountFlight(/*awaited=*/true, -1);
  if (!status.ok() && parts_->traits.errors_end_links) Fail(status);
  if (record->parts_in_flight > 0 || !record->AllPosted()) return;
  record->Separate([&](OperationRecord* piece) {
    WorkList::Remove(piece);
    parts_->operations.Defer(piece, status);
  });
  WorkList::Remove(record);
  parts_->operations.Complete(record);
}

void FabricLink::TakeBackFailed(Work* work, const absl::Status& why) {
  if (work->kind == WorkKind::kSend) return TakeBack(static_cast<Slot*>(work));
  auto* record = static_cast<OperationRecord*>(work);
  if (record->parts_in_flight == 0) return parts_->operations.Defer(record, why);
  record->status = why;
  record->bytes = record->bytes_posted;  // no further part; the ones in flight end it
  posted_.PushBack(record);
}

// The provider is done with these works, whatever it still reports.
void FabricLink::FinishAll(WorkList& works, const absl::Status& status) {
  while (Work* work = works.PopFront()) {
    if (work->kind == WorkKind::kSend) {
      auto* slot = static_cast<Slot*>(work);
      if (slot->posted) CountFlight(IsAwaited(*slot), -1);
      TakeBack(slot);
    } else {
      auto* record = static_cast<OperationRecord*>(work);
      const auto parts = static_cast<int>(std::exchange(record->parts_in_flight, 0));
      CountFlight(/*awaited=*/true, -parts);
      record->next_piece = nullptr;  // all of them are here
      parts_->operations.Defer(record, status);
    }
  }
}

// --- the end -----------------------------------------------------------------------------------

void FabricLink::Abandon() {
  Detach(absl::UnavailableError("the peer is gone"), /*peer_is_gone=*/true);
}

void FabricLink::Detach(const absl::Status& status, bool peer_is_gone) {
  if (std::exchange(detached_, true)) return;
  life_.End();
  if (parts_->last_used == this) parts_->last_used = nullptr;
  ForgetDuties();
  StopProvider(peer_is_gone);
  endpoint_ = nullptr;
  WorkList works;
  works.SpliceBack(posted_);
  works.SpliceBack(waiting_);
  FinishAll(works, status);
}

}  // namespace weft
