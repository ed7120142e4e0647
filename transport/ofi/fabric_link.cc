#include "transport/ofi/fabric_link.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/inline.h"
#include "core/status.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/transfer_check.h"

namespace weft {

FabricLink::FabricLink(FabricDomain* domain, LinkHandler* handler, uint64_t nonce)
    : domain_(domain), parts_(&domain->parts()), nonce_(nonce), life_(handler) {
  parts_->links.Join(this);
  domain_->BeginConnecting();
}

FabricLink::~FabricLink() {
  Detach(absl::CancelledError("the link was closed"));
  parts_->operations.CompleteOf(this);
  parts_->links.Leave(this);
}

// --- works -------------------------------------------------------------------------------------

// --- posting -----------------------------------------------------------------------------------

SendSlot FabricLink::TakeSlot(uint32_t /*least*/) { return parts_->slots.Acquire(); }

absl::Status FabricLink::SendFence(const SendSlot& slot, uint32_t bytes, Operation* passed) {
  Slot* taken = DomainSlots::SlotOf(slot);
  // Ours: framing fills a slot, and no more
  WEFT_DCHECK(bytes > 0 && bytes <= parts_->slots.slot_bytes());
  if (!life_.up()) [[unlikely]] {
    parts_->slots.Give(taken);
    return life_.CheckUp();
  }
  taken->link = this;
  taken->bytes = bytes;
  taken->fence = passed;
  if (!waiting_.empty() || reads_under_way_ > 0) [[unlikely]]
    return Submit(taken);
  const int result = PostSend(taken);  // as Post() does
  return result == 0 ? absl::OkStatus() : OnRefused(taken, result);
}

absl::StatusOr<Posted> FabricLink::Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                        Operation* op) {
  if (kind == TransferKind::kWriteAcknowledged && !has_fence()) kind = TransferKind::kWrite;
  if (kind == TransferKind::kWriteUnordered) kind = TransferKind::kWrite;
  return transfers.size() == 1 ? PostOne(kind, transfers[0], op) : PostBatch(kind, transfers, op);
}

// The local end's descriptor.
absl::StatusOr<void*> FabricLink::Check(TransferKind kind, const Transfer& transfer) const {
  WEFT_RETURN_IF_ERROR(CheckTransfer(transfer));
  const auto* region = dynamic_cast<const FabricRegion*>(transfer.local);
  if (region == nullptr || !region->BelongsTo(&parts_->registrar)) return RegionOfAnother();
  if (transfer.remote.key > parts_->max_key) {
    return absl::InvalidArgumentError(
        absl::StrCat("remote key ", transfer.remote.key, " is longer than this path's keys are"));
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
  WEFT_DCHECK(count >= 1 && count <= kMaxBatchTransfers);  // Ours: RemoteAccess has refused others
  std::array<void*, kMaxBatchTransfers> descriptors;
  for (size_t i = 0; i < count; ++i) {
    WEFT_ASSIGN_OR_RETURN(descriptors[i], Check(kind, transfers[i]));
  }
  if (absl::Status up = life_.CheckUp(); !up.ok()) return up;
  OutstandingOperations& operations = parts_->operations;
  if (!operations.HasRoomFor(count)) return TooManyOperations();
  Operation* const join = operations.Join(op, static_cast<uint32_t>(count));
  for (size_t i = 0; i < count; ++i) {
    OperationRecord* const record = operations.Take();
    Fill(record, kind, transfers[i], descriptors[i], join);
    SubmitOperation(record);
  }
  return Posted::kPending;
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
  if (waiting_.empty() && !Held(*work)) {
    const int result = Post(work);
    return result == 0 ? absl::OkStatus() : OnRefused(work, result);
  }
  Wait(work);
  return absl::OkStatus();
}

absl::Status FabricLink::OnRefused(Work* work, int result) {
  if (result != -FI_EAGAIN) {
    absl::Status why = FabricStatus(result, "posting to the provider");
    TakeBackFailed(work, why);
    Fail(why);
    return why;
  }
  ++parts_->stats.eagain;
  Wait(work);
  return absl::OkStatus();
}

void FabricLink::Wait(Work* work) {
  waiting_.PushBack(work);
  ScheduleRetry();
}

bool FabricLink::Held(const Work& work) const {
  return reads_under_way_ > 0 &&
         (work.kind == WorkKind::kSend ||
          static_cast<const OperationRecord&>(work).operation != TransferKind::kRead);
}

void FabricLink::CountRead(const OperationRecord& record, int parts) {
  if (record.operation != TransferKind::kRead || !parts_->traits.completes_out_of_order) return;
  reads_under_way_ += parts;
  if (reads_under_way_ == 0) ScheduleRetry();
}

// What is held is not tried before the last read is over.
void FabricLink::ScheduleRetry() {
  if (life_.up() && !waiting_.empty() && !Held(*waiting_.begin()))
    parts_->links.ScheduleRetry(this);
}

void FabricLink::Retry() {
  int result = 0;
  while (result == 0 && life_.up() && !waiting_.empty() && !Held(*waiting_.begin())) {
    Work* const work = waiting_.PopFront();
    result = Post(work);
    if (result == -FI_EAGAIN) {
      ++parts_->stats.eagain;
      waiting_.PushFront(work);
    } else if (result != 0) {
      const absl::Status why = FabricStatus(result, "posting to the provider");
      TakeBackFailed(work, why);
      Fail(why);
    }
  }
  ScheduleRetry();
}

int FabricLink::Post(Work* work) {
  return work->kind == WorkKind::kSend ? PostSend(static_cast<Slot*>(work))
                                       : PostOperation(static_cast<OperationRecord*>(work));
}

WEFT_INLINE int FabricLink::PostSend(Slot* slot) {
  if (!parts_->queue.HasFlightRoom()) return -FI_EAGAIN;
  const int result =
      slot->fence != nullptr
          ? PostFence(slot)
          : static_cast<int>(fi_send(endpoint_.get(), slot->data, slot->bytes, slot->descriptor,
                                     FI_ADDR_UNSPEC, slot->id().context()));
  if (result == 0) {
    posted_.PushBack(slot);
    slot->posted = true;
    parts_->queue.CountFlight(+1);
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
  message.addr = FI_ADDR_UNSPEC;
  message.context = slot->id().context();
  return static_cast<int>(
      fi_sendmsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

int FabricLink::PostOperation(OperationRecord* record) {
  while (!record->AllPosted()) {
    if (!parts_->queue.HasFlightRoom()) return -FI_EAGAIN;
    const uint64_t part =
        std::min(record->bytes - record->bytes_posted, parts_->max_transfer_bytes);
    if (const int result = PostPart(*record, part); result != 0) return result;
    record->bytes_posted += part;
    ++record->parts_in_flight;
    parts_->queue.CountFlight(+1);
    CountRead(*record, +1);
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
      return static_cast<int>(fi_read(endpoint_.get(), local, bytes, record.descriptor,
                                      FI_ADDR_UNSPEC, remote, record.remote_key, context));
    case TransferKind::kWrite:
    case TransferKind::kWriteUnordered:
      return static_cast<int>(fi_write(endpoint_.get(), local, bytes, record.descriptor,
                                       FI_ADDR_UNSPEC, remote, record.remote_key, context));
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
  message.addr = FI_ADDR_UNSPEC;
  message.rma_iov = &there;
  message.rma_iov_count = 1;
  message.context = context;
  return static_cast<int>(
      fi_writemsg(endpoint_.get(), &message, FI_COMPLETION | FI_DELIVERY_COMPLETE));
}

// --- reclaiming --------------------------------------------------------------------------------

bool FabricLink::Reclaim(std::unique_ptr<Region> region) {
  auto* const own = dynamic_cast<FabricRegion*>(region.get());
  if (own == nullptr) return false;
  own->Close();
  return parts_->traits.closing_reclaims;
}

bool FabricLink::has_fence() const { return parts_->traits.fences; }

bool FabricLink::reads_prove_writes() const { return parts_->traits.reads_prove_writes; }

// --- events ------------------------------------------------------------------------------------

void FabricLink::OnConnected() {
  EndConnecting();
  if (life_.BecomeUp()) parts_->links.ScheduleEvent(this);
}

void FabricLink::OnDisconnected(const absl::Status& why) {
  EndConnecting();
  Fail(why);
}

void FabricLink::EndConnecting() {
  if (std::exchange(connecting_, false)) domain_->EndConnecting();
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
  parts_->queue.CountFlight(-1);
  parts_->slots.Give(slot);
  if (!status.ok()) return Fail(status);
  if (fence != nullptr) fence->OnComplete(absl::OkStatus());
}

void FabricLink::OnPartDone(OperationRecord* record, const absl::Status& status) {
  if (record->status.ok()) record->status = status;
  --record->parts_in_flight;
  parts_->queue.CountFlight(-1);
  CountRead(*record, -1);
  if (!status.ok() && parts_->traits.errors_end_links) Fail(status);
  if (record->parts_in_flight > 0 || !record->AllPosted()) return;
  WorkList::Remove(record);
  parts_->operations.Complete(record);
}

void FabricLink::TakeBackFailed(Work* work, const absl::Status& why) {
  if (work->kind == WorkKind::kSend) return parts_->slots.Give(static_cast<Slot*>(work));
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
      if (slot->posted) parts_->queue.CountFlight(-1);
      parts_->slots.Give(slot);
    } else {
      auto* record = static_cast<OperationRecord*>(work);
      const auto parts = static_cast<int>(std::exchange(record->parts_in_flight, 0));
      parts_->queue.CountFlight(-parts);
      parts_->operations.Defer(record, status);
    }
  }
}

// --- the end -----------------------------------------------------------------------------------

void FabricLink::Abandon() { Detach(absl::UnavailableError("the peer is gone")); }

// Closing an endpoint never blocks, and afterwards the provider touches nothing of it. What it
// still reports about its works is recognized as stale.
void FabricLink::Detach(const absl::Status& status) {
  if (std::exchange(detached_, true)) return;
  life_.End();
  ForgetDuties();
  EndConnecting();
  domain_->Forget(this);
  endpoint_.reset();
  WorkList works;
  works.SpliceBack(posted_);
  works.SpliceBack(waiting_);
  FinishAll(works, status);
}

}  // namespace weft
