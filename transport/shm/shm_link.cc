#include "transport/shm/shm_link.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <typeinfo>
#include <utility>

#include "core/check.h"
#include "core/full_fence.h"
#include "core/inline.h"
#include "core/prefetch.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/doorbell.h"
#include "transport/shm/copy_turn.h"
#include "transport/shm/shm_domain.h"
#include "transport/shm/shm_region.h"
#include "transport/transfer_check.h"

namespace weft {
namespace {

// What one system call copies for a batch whose memory is not mapped: 25 to 60 us.
constexpr uint64_t kBatchBytesAtOnce = 256 << 10;

uint64_t BytesOf(absl::Span<const Transfer> transfers) {
  uint64_t bytes = 0;
  for (const Transfer& transfer : transfers) bytes += transfer.remote.length;
  return bytes;
}

}  // namespace

ShmLink::ShmLink(ShmDomain* domain, LinkHandler* handler, ShmRole role, PeerDoorbell* doorbell)
    : domain_(domain),
      doorbell_(doorbell),
      life_(handler),
      role_(role),
      answerer_(&domain->memory_->regions()) {}

ShmLink::~ShmLink() {
  if (!memory_.valid() && !detached_) return;  // not started
  if (writer_.has_claim() || IsStaging()) ReleaseSlot();
  Detach(absl::CancelledError("the link was closed"), /*peer_is_gone=*/false);
  domain_->CompleteDeferredOf(this);
  domain_->Leave(this);
}

// --- up ------------------------------------------------------------------------------------------

absl::Status ShmLink::Start(LinkMemory memory, std::shared_ptr<PeerDomain> peer) {
  const bool passive = role_ == ShmRole::kPassive;
  SharedSide& own = passive ? memory->passive : memory->active;
  if (own.state.load(std::memory_order_relaxed) != SideState::kAbsent) {
    return absl::InvalidArgumentError("the memory handed over belongs to another link already");
  }
  if (!passive && memory->passive.state.load(std::memory_order_acquire) != SideState::kHere) {
    return absl::UnavailableError("the peer does not wait for this link");
  }
  WEFT_RETURN_IF_ERROR(domain_->Join(this));
  memory_ = std::move(memory);
  peer_ = std::move(peer);
  std::byte* const to_passive = memory_->to_passive;
  std::byte* const to_active = memory_->to_active;
  reader_ = passive ? RingReader(to_passive, &memory_->to_passive_words, kMaxRecordPayload)
                    : RingReader(to_active, &memory_->to_active_words, kMaxRecordPayload);
  writer_ = passive ? RingWriter(to_active, &memory_->to_active_words)
                    : RingWriter(to_passive, &memory_->to_passive_words);
  SharedSide& mine = passive ? memory_->passive : memory_->active;
  mine.flag_index.store(hot_.flag, std::memory_order_relaxed);
  mine.state.store(SideState::kHere, std::memory_order_release);
  if (!passive) MeetPeer();
  return absl::OkStatus();
}

// Whether the peer's side has said anything.
bool ShmLink::MeetPeer() {
  SharedSide& other = role_ == ShmRole::kPassive ? memory_->active : memory_->passive;
  const SideState state = other.state.load(std::memory_order_acquire);
  if (state == SideState::kAbsent) return false;
  const uint32_t index = other.flag_index.load(std::memory_order_relaxed);
  if (state != SideState::kHere) {
    Fail(absl::UnavailableError("the peer gave up connecting"));
  } else if (index >= kMaxShmLinks) {
    Fail(absl::DataLossError("the peer's shared memory makes no sense"));
  } else {
    peer_flag_ = peer_->ready_flag(index);
    BecomeUp();
    TellPeer();
  }
  return true;
}

void ShmLink::BecomeUp() {
  if (life_.BecomeUp()) domain_->ScheduleEvent(this);
}

void ShmLink::Fail(const absl::Status& why) {
  if (life_.Fail(why)) domain_->ScheduleEvent(this);
}

void ShmLink::DeliverEvent() {
  life_.Deliver([this] { domain_->ScheduleEvent(this); });
}

// --- prefetch ------------------------------------------------------------------------------------

PrefetchList& ShmLink::prefetch() { return domain_->hot_links_.PrefetchOf(this); }

// The lines to be written first: they come from the peer's cache. Then in the order of a receiver's
// need: the link, and the ring, where the reader looks at two places.
void ShmLink::RegisterForPrefetch(PrefetchList& prefetch) const {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"  // of a class with bases: they all know it
  static_assert(offsetof(ShmLink, role_) <= kLinesInUse * kCacheLineBytes);
#pragma GCC diagnostic pop
  const std::byte* const beginning =
      role_ == ShmRole::kPassive ? memory_->to_passive : memory_->to_active;
  prefetch.Begin(peer_flag_);
  prefetch.AddForWrite(writer_.place(), kLinesOfRecord * kCacheLineBytes);
  prefetch.Add(this, kLinesInUse * kCacheLineBytes);
  prefetch.Add(reader_.place(), 1);
  prefetch.Add(beginning, kLinesOfRecord * kCacheLineBytes);
  prefetch.Add(doorbell_, doorbell_ != nullptr);
}

// --- sending -------------------------------------------------------------------------------------

// REQUIRES: a full fence behind what the peer is to see.
WEFT_INLINE void ShmLink::WakePeer() {
  if (doorbell_ != nullptr) doorbell_->RingAfterFence();
}

// The ready flag of a link that the peer polls anyway is set already.
WEFT_INLINE void ShmLink::SetPeerFlag() {
  if (peer_flag_->load(std::memory_order_relaxed) == 0) {
    peer_flag_->store(1, std::memory_order_release);
  }
}

// Publishing comes first. The fence waits for what was stored to be seen, in cache lines that the
// peer may have: so the flag's line is prefetched before it, together with the record's. Behind it
// the flag is looked at once more, for the reason in ready_flags.h.
WEFT_INLINE void ShmLink::TellPeer() {
  SetPeerFlag();
  FullFence();
  SetPeerFlag();
  WakePeer();
}

SendSlot ShmLink::TakeSlot(uint32_t least) {
  if (!life_.up() || waiting_batch_.bytes > 0) [[unlikely]]
    return {};
  if (writer_.KnowsAllConsumed() && domain_->staging_ == nullptr && !hot_.cold()) [[likely]] {
    ++domain_->stats_.send_slots_in_use;
    domain_->staging_ = this;
    return {domain_->staged_, this, domain_->slot_bytes()};
  }
  RingWriter::Claim claim;
  if (!IsStaging()) claim = writer_.TryClaim(least, domain_->slot_bytes());
  if (claim.payload == nullptr) [[unlikely]] {
    AwaitRoom();
    return {};
  }
  // The lines of a ring that was not used lately come together. (Whether the peer polls it is not
  // asked: its flag is in the peer's cache, and what is stored behind a load is not seen before the
  // load has come back.)
  if (hot_.cold()) [[unlikely]] {
    PrefetchForWrite(claim.payload);
    PrefetchForWrite(claim.payload + kCacheLineBytes);
  }
  ++domain_->stats_.send_slots_in_use;
  return {claim.payload, this, claim.room};
}

bool ShmLink::GrowSlot(SendSlot* slot, uint32_t used) {
  WEFT_DCHECK(slot->record == this);  // Ours: slots are of this link
  if (IsStaging()) return false;      // it is as large as any
  const RingWriter::Claim claim = writer_.TryGrow(used, domain_->slot_bytes());
  if (claim.payload == nullptr) return false;
  slot->data = claim.payload;
  slot->room = claim.room;
  return true;
}

// Where the slot is the domain's, what was written since it was taken may have left no room: false.
WEFT_INLINE bool ShmLink::Publish(const std::byte* data, uint32_t bytes) {
  if (!IsStaging()) [[unlikely]] {
    writer_.Publish(RecordKind::kBatch, bytes, reader_.acked());
    return true;
  }
  const ByteSpan batch(data, bytes);
  if (writer_.TryWrite(RecordKind::kBatch, batch, reader_.acked()) != RingWriter::Result::kWritten)
      [[unlikely]]
    return false;
  domain_->staging_ = nullptr;
  return true;
}

absl::Status ShmLink::Send(const SendSlot& slot, uint32_t bytes) {
  // Ours: slots are of this link
  WEFT_DCHECK(slot.record == this && bytes > 0 && bytes <= slot.room);
  if (!life_.up()) [[unlikely]] {
    ReleaseSlot();
    return life_.CheckUp();
  }
  if (!waiting_.empty() || !Publish(slot.data, bytes)) [[unlikely]] {
    return KeepBatch(bytes, slot.data);
  }
  --domain_->stats_.send_slots_in_use;
  TellPeer();
  if (hot_.cold()) [[unlikely]]
    domain_->hot_links_.AwaitAnswer(this);
  return absl::OkStatus();
}

WEFT_COLD void ShmLink::ReleaseSlot() {
  --domain_->stats_.send_slots_in_use;
  GiveUpSlot();
  if (detached_) memory_.Reset();
}

// Behind the operations that wait; it counts as a slot that is out until it is in the ring again.
WEFT_COLD absl::Status ShmLink::KeepBatch(uint32_t bytes, const std::byte* data) {
  ShmWaitingBatch& batch = waiting_batch_;
  if (batch.data.empty()) {
    // For as many peers as read nothing: where memory is bounded they end their own connections.
    batch.data = Block::Take(domain_->slot_bytes(), kCacheLineBytes, MemoryKind::kSlots);
    if (batch.data.empty()) {
      ReleaseSlot();
      return absl::ResourceExhaustedError(
          StrCat("no memory (", domain_->slot_bytes(),
                 " bytes) for a message to a peer that reads nothing; the host's hook has none"));
    }
  }
  std::memcpy(batch.data.data(), data, bytes);
  batch.bytes = bytes;
  GiveUpSlot();
  if (waiting_.empty()) {
    WaitInLine(&batch, Progress::kNoRoom);
  } else {
    waiting_.PushBack(&batch);
  }
  return absl::OkStatus();
}

bool ShmLink::IsStaging() const { return domain_->staging_ == this; }

// What was written into it is not sent from there.
void ShmLink::GiveUpSlot() {
  if (IsStaging()) {
    domain_->staging_ = nullptr;
  } else {
    writer_.Abandon();
  }
}

ShmLink::Progress ShmLink::CarryBatch() {
  const ByteSpan batch(waiting_batch_.data.data(), waiting_batch_.bytes);
  const RingWriter::Result result = writer_.TryWrite(RecordKind::kBatch, batch, reader_.acked());
  if (result == RingWriter::Result::kFull) {
    ++domain_->stats_.eagain;
    writer_.WantRoom();
    return Progress::kNoRoom;
  }
  waiting_batch_.bytes = 0;
  --domain_->stats_.send_slots_in_use;
  if (result == RingWriter::Result::kWritten) return Progress::kDone;
  Fail(absl::DataLossError("the peer broke the rules of the ring: an impossible count"));
  return Progress::kFailed;
}

bool ShmLink::HasRoom() {
  if (!life_.up() || waiting_batch_.bytes > 0) return false;
  if (!IsStaging() && writer_.HasRoom(domain_->slot_bytes())) return true;
  AwaitRoom();
  return false;
}

// There is none, or the slot is out.
WEFT_COLD void ShmLink::AwaitRoom() {
  if (writer_.broken()) {
    return Fail(absl::DataLossError("the peer broke the rules of the ring: an impossible count"));
  }
  ++domain_->stats_.eagain;
  writer_.WantRoom();
  domain_->ScheduleRetry(this);
}

// REQUIRES: kNoRoom or kNoTime, of the first in line.
void ShmLink::WaitInLine(ShmWork* work, Progress why) {
  waiting_.PushBack(work);
  if (why == Progress::kNoTime) {
    domain_->ScheduleTurn(this);
  } else {
    domain_->ScheduleRetry(this);
  }
}

// Takes the work unless it has to wait.
ShmLink::Progress ShmLink::Carry(ShmWork* work) {
  return work->is_send ? CarryBatch() : CarryOperation(static_cast<ShmOperation*>(work));
}

bool ShmLink::CanRetry() {
  const bool only_asks = !waiting_.empty() && !waiting_.Front()->is_send && asker_.full();
  const uint32_t most = std::max(domain_->slot_bytes(), kMaxAskPayload);
  return (!IsStaging() && writer_.HasRoom(most) && (!only_asks || answerer_.owes())) ||
         writer_.broken();
}

void ShmLink::Retry() {
  if (answerer_.owes() && life_.up()) Answer();
  bool sent = false;
  Progress progress = Progress::kDone;
  while (progress == Progress::kDone && life_.up() && !waiting_.empty()) {
    ShmWork* const work = waiting_.PopFront();
    progress = Carry(work);
    if (progress == Progress::kNoRoom || progress == Progress::kNoTime) {
      waiting_.PushFront(work);
    } else {
      sent = sent || work->is_send;
    }
  }
  if (!life_.up()) return;
  if (sent) TellPeer();
  if (progress == Progress::kNoTime) return domain_->ScheduleTurn(this);
  if (waiting_.empty() && HasRoom()) {
    writer_.StopWanting();
    life_.handler()->OnSlotsFree();
  } else if (life_.up()) {
    domain_->ScheduleRetry(this);
  }
}

// --- receiving -----------------------------------------------------------------------------------

// Whether Receive() of a link that is not up has something to do.
WEFT_COLD bool ShmLink::HasArrived() const {
  if (state() != State::kConnecting) return false;
  return memory_->active.state.load(std::memory_order_acquire) != SideState::kAbsent;
}

// `this` may be gone, or detached, when this returns.
WEFT_INLINE void ShmLink::OnRecord(const RingReader::Record& record) {
  const bool is_batch =
      record.kind == RecordKind::kBatch && record.payload.size() <= domain_->slot_bytes();
  if (is_batch) [[likely]]
    return domain_->options_.sink->OnReceived(record.payload, life_.handler());
  OnOtherRecord(record.kind, record.payload);
}

int ShmLink::Receive(uint64_t found, int budget) {
  if (!life_.up()) [[unlikely]]
    return MeetPeer() ? 1 : 0;
  ShmDomain* const domain = domain_;
  int count = 0;
  do {
    RingReader::Record record;
    if (!reader_.Take(found, domain->buffer_, &record)) [[unlikely]] {
      Fail(absl::DataLossError("the peer broke the rules of the ring: a bad record"));
      return count;
    }
    ++count;
    writer_.OnAcked(record.acked);
    OnRecord(record);
    if (!domain->hot_links_.IsReceiving(this) || !life_.up()) [[unlikely]]
      return count;
    found = reader_.Find();
  } while (found != 0 && count < budget);
  if (found == 0) writer_.OnAllSeen();
  if (reader_.AckConsumed()) [[unlikely]]
    WakePeer();
  return count;
}

WEFT_COLD void ShmLink::OnOtherRecord(RecordKind kind, ByteSpan payload) {
  switch (kind) {
    case RecordKind::kBatch:
      break;
    case RecordKind::kClosed:
      return Fail(absl::UnavailableError("the peer closed the link"));
    case RecordKind::kAsk:
      return OnAsk(payload);
    case RecordKind::kAnswer:
      return OnAnswer(payload);
  }
  Fail(absl::DataLossError("the peer broke the rules of the ring: a record nobody waits for"));
}

// --- one-sided -----------------------------------------------------------------------------------

absl::Status ShmLink::Check(const Transfer& transfer) const {
  WEFT_RETURN_IF_ERROR(CheckTransfer(transfer));
  const Region& local = *transfer.local;
  if (typeid(local) != typeid(ShmRegion) ||
      !static_cast<const ShmRegion&>(local).BelongsTo(domain_)) {
    return RegionOfAnother();
  }
  return life_.CheckUp();
}

void ShmLink::Fill(ShmOperation* record, bool is_read, const Transfer& transfer, Operation* op) {
  record->link = this;
  record->user = op;
  record->local = transfer.local->memory().data() + transfer.local_offset;
  record->remote_offset = transfer.remote.offset;
  record->remote_key = transfer.remote.key;
  record->bytes = transfer.remote.length;
  record->bytes_done = 0;
  record->is_read = is_read;
  record->asks = record->all_asked = false;
  record->pieces_asked = 0;
}

bool ShmLink::MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) {
  WEFT_DCHECK(local.size() == remote.length);  // User: what MoveNow() requires
  if (remote.length > CopyTurn::kPieceBytes || !life_.up()) [[unlikely]]
    return false;
  PeerRegions* const regions = peer_->regions();
  if (regions == nullptr) return false;
  const auto move = [&] { return regions->Move(kind == TransferKind::kRead, local, remote); };
  if (remote.length <= CopyTurn::kSmallBytes) [[likely]]
    return move();
  CopyTurn& turn = domain_->copy_turn_;
  return turn.may_copy() && turn.Count(move);
}

// Inside the call: by memcpy where all of it is mapped, whatever waits in line, for operations
// among themselves have no order; else by one system call for all that is left, when nothing waits.
WEFT_INLINE bool ShmLink::MoveAtOnce(bool is_read, absl::Span<const Transfer> transfers,
                                     Copied* copied) {
  if (peer_->regions() == nullptr) return false;
  if (BytesOf(transfers) > CopyTurn::kSmallBytes) [[unlikely]]
    return MoveInTurn(is_read, transfers, copied);
  if (MovePiece(is_read, transfers, copied)) [[likely]]
    return true;
  return waiting_.empty() &&
         peer_->regions()->TransferAtOnce(is_read, transfers.subspan(copied->transfers));
}

// As MoveAtOnce(), by pieces while the turn has time; *copied says how far. The system call takes
// whole transfers, so none of which a part is copied.
bool ShmLink::MoveInTurn(bool is_read, absl::Span<const Transfer> transfers, Copied* copied) {
  CopyTurn& turn = domain_->copy_turn_;
  while (turn.may_copy()) {
    if (turn.Count([&] { return MovePiece(is_read, transfers, copied); })) {
      if (copied->transfers == transfers.size()) return true;
      continue;
    }
    const absl::Span<const Transfer> rest = transfers.subspan(copied->transfers);
    return copied->bytes == 0 && BytesOf(rest) <= kBatchBytesAtOnce && waiting_.empty() &&
           turn.Count([&] { return peer_->regions()->TransferAtOnce(is_read, rest); });
  }
  return false;
}

// Goes on with them by CopyTurn::kPieceBytes at most. False: what comes next is not mapped, or is
// refused.
bool ShmLink::MovePiece(bool is_read, absl::Span<const Transfer> transfers, Copied* copied) {
  uint64_t left = CopyTurn::kPieceBytes;
  while (copied->transfers < transfers.size() && left > 0) {
    const Transfer& transfer = transfers[copied->transfers];
    const uint64_t bytes = std::min(transfer.remote.length - copied->bytes, left);
    const MutableByteSpan local =
        transfer.local->memory().subspan(transfer.local_offset + copied->bytes, bytes);
    if (!peer_->regions()->Move(is_read, local, transfer.remote.Slice(copied->bytes, bytes))) {
      return false;
    }
    left -= bytes;
    copied->bytes += bytes;
    if (copied->bytes == transfer.remote.length) *copied = {copied->transfers + 1, 0};
  }
  return true;
}

absl::StatusOr<Posted> ShmLink::Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                     Operation* op) {
  // Ours: RemoteAccess has refused others
  WEFT_DCHECK(!transfers.empty() && transfers.size() <= kMaxBatchTransfers);
  const bool is_read = kind == TransferKind::kRead;
  for (const Transfer& transfer : transfers) WEFT_RETURN_IF_ERROR(Check(transfer));
  Copied copied;
  if (MoveAtOnce(is_read, transfers, &copied)) [[likely]]
    return Posted::kDone;
  const absl::Span<const Transfer> rest = transfers.subspan(copied.transfers);
  ShmOperations& table = domain_->operations_;
  if (table.room() < rest.size()) return domain_->TooManyOperations();
  // There are as many joins as records, so there is one.
  const auto pieces = static_cast<uint32_t>(rest.size());
  Operation* const end = pieces == 1 ? op : domain_->joins_.Take(op, pieces);
  for (const Transfer& transfer : rest) {
    ShmOperation* const record = table.Take();
    Fill(record, is_read, transfer, end);
    record->bytes_done = std::exchange(copied.bytes, 0u);
    Submit(record);
  }
  return Posted::kPending;
}

void ShmLink::Submit(ShmOperation* record) {
  if (!waiting_.empty()) return waiting_.PushBack(record);  // it goes on when those before it do
  const Progress progress = CarryOperation(record);
  if (progress == Progress::kNoRoom || progress == Progress::kNoTime) WaitInLine(record, progress);
}

// A bad key fails the operation, not the link.
ShmLink::Progress ShmLink::CarryOperation(ShmOperation* record) {
  if (record->asks) return CarryAsked(record);
  PeerRegions* const regions = peer_->regions();
  CopyTurn& turn = domain_->copy_turn_;
  absl::Status status;
  while (record->bytes_done < record->bytes && status.ok()) {
    if (!turn.may_copy()) return Progress::kNoTime;
    const uint64_t part = std::min(record->bytes - record->bytes_done, CopyTurn::kPieceBytes);
    status = regions == nullptr ? peer_->regions_status() : turn.Count([&] {
      return regions->Transfer(record->is_read, record->local + record->bytes_done, part,
                               record->remote_key, record->remote_offset + record->bytes_done);
    });
    if (absl::IsUnimplemented(status)) {
      record->asks = true;
      return CarryAsked(record);
    }
    record->bytes_done += part;
  }
  domain_->Defer(record, status);
  return Progress::kDone;
}

// --- one-sided, through the peer -----------------------------------------------------------------

ShmLink::Progress ShmLink::CarryAsked(ShmOperation* record) {
  const uint64_t done_before = record->bytes_done;
  const CopyAsker::Result result = asker_.Ask(writer_, reader_.acked(), record);
  if (result == CopyAsker::Result::kBroken) {
    record->all_asked = true;
    const absl::Status why =
        absl::DataLossError("the peer broke the rules of the ring: an impossible count");
    Fail(why);
    if (record->pieces_asked == 0) domain_->Defer(record, why);  // else with the link
    return Progress::kFailed;
  }
  if (record->bytes_done > done_before) TellPeer();
  if (result == CopyAsker::Result::kNoRoom) return Progress::kNoRoom;
  if (record->pieces_asked == 0) domain_->Defer(record, record->status);
  return Progress::kDone;
}

void ShmLink::OnAsk(ByteSpan ask) {
  if (!answerer_.OnAsk(ask)) {
    return Fail(absl::DataLossError("the peer asked for access against the rules"));
  }
  Answer();
}

void ShmLink::Answer() {
  const CopyAnswerer::Result result = answerer_.Answer(writer_, reader_.acked());
  if (result == CopyAnswerer::Result::kBroken) {
    return Fail(absl::DataLossError("the peer broke the rules of the ring: an impossible count"));
  }
  if (result == CopyAnswerer::Result::kNoRoom) domain_->ScheduleRetry(this);
  TellPeer();
}

// What waits for room to ask goes on in this turn's or the next turn's Retry().
void ShmLink::OnAnswer(ByteSpan answer) {
  ShmOperation* ended = nullptr;
  if (!asker_.OnAnswer(answer, &ended)) {
    return Fail(absl::DataLossError("the peer answered what it was not asked"));
  }
  if (ended != nullptr) domain_->Defer(ended, ended->status);
}

// Peers copy by themselves, under pins, or ask this engine, which looks at the table first: no
// write goes on behind a Close() that returned true, and no read that goes on succeeds.
bool ShmLink::Reclaim(std::unique_ptr<Region> region) {
  Region& given = *region;
  if (typeid(given) != typeid(ShmRegion)) return false;
  return static_cast<ShmRegion&>(given).Close();
}

// --- the end -------------------------------------------------------------------------------------

void ShmLink::Abandon() {
  Detach(absl::UnavailableError("the peer is gone"), /*peer_is_gone=*/true);
}

void ShmLink::Detach(const absl::Status& status, bool peer_is_gone) {
  if (std::exchange(detached_, true)) return;
  if (!peer_is_gone) {
    SharedSide& own = role_ == ShmRole::kPassive ? memory_->passive : memory_->active;
    own.state.store(SideState::kLeft, std::memory_order_release);
    writer_.Close(reader_.acked());
    if (peer_flag_ != nullptr) TellPeer();
  }
  life_.End();
  ForgetDuties();
  domain_->hot_links_.MakeCold(this);
  prefetch().Clear();
  asker_.Clear([&](ShmOperation* operation) { domain_->Defer(operation, status); });
  while (ShmWork* const work = waiting_.PopFront()) {
    if (!work->is_send) domain_->Defer(static_cast<ShmOperation*>(work), status);
  }
  if (std::exchange(waiting_batch_.bytes, 0u) > 0) --domain_->stats_.send_slots_in_use;
  peer_flag_ = nullptr;
  if (!writer_.has_claim()) memory_.Reset();  // else when the slot comes back
  peer_.reset();
}

}  // namespace weft
