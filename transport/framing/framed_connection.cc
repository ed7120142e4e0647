// Life, events and one-sided operations of FramedConnection.

#include "transport/framing/framed_connection.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/framed_steps.h"

namespace weft {
namespace {

// What a peer that dials may have kept here before the connection is open. (It has no reason to
// send that early, but the side that listens has: the dialling side keeps a whole window.)
constexpr size_t kMostEarlyBytes = size_t{1} << 20;

absl::Status CheckAgreement(const LinkAgreement& agreement, uint32_t slot_bytes) {
  const auto window_ok = [](uint32_t slots) {
    return slots >= kMinWindowSlots && slots <= kMaxWindowSlots;
  };
  if (!window_ok(agreement.send_window_slots) || !window_ok(agreement.receive_window_slots)) {
    return absl::InvalidArgumentError(
        StrCat("windows of ", agreement.send_window_slots, " and ", agreement.receive_window_slots,
               " slots were agreed; ", kMinWindowSlots, " to ", kMaxWindowSlots, " are possible"));
  }
  if (agreement.batch_bytes < kMinBatchBytes || agreement.batch_bytes > slot_bytes) {
    return absl::InvalidArgumentError(StrCat("batches of ", agreement.batch_bytes,
                                             " bytes were agreed; ", kMinBatchBytes, " to ",
                                             slot_bytes, " are possible here"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<FramedConnection>> FramedConnection::Create(
    ConnectionTable* table, ConnectionOwner* owner, ConnectionHandler* handler,
    const Options& options) {
  std::unique_ptr<FramedConnection> connection(
      new FramedConnection(table, owner, handler, options));
  WEFT_ASSIGN_OR_RETURN(connection->index_, table->Add(connection.get(), options.token));
  connection->ended_ = false;
  return connection;
}

FramedConnection::FramedConnection(ConnectionTable* table, ConnectionOwner* owner,
                                   ConnectionHandler* handler, const Options& options)
    : handler_(handler),
      table_(table),
      owner_(owner),
      token_(options.token),
      large_sender_(this),
      large_receiver_(this),
      operations_(this, options.max_outstanding_operations),
      leases_(this, table->exports_),
      reclaimer_(this) {}

FramedConnection::~FramedConnection() { WEFT_CHECK(ended_); }

// --- links --------------------------------------------------------------------------------------

absl::Status FramedConnection::StartLink(FramingDomain* domain, const LinkPeer& peer, bool active,
                                         const LinkAgreement& agreement) {
  WEFT_CHECK(state_ == State::kConnecting && link_ == nullptr);
  LinkDomain& links = domain->links();
  WEFT_RETURN_IF_ERROR(CheckAgreement(agreement, links.slot_bytes()));
  const uint32_t receive_slots = agreement.receive_window_slots;
  // The peer may grant more than this side wants to spend memory on.
  const uint32_t send_slots = std::min(agreement.send_window_slots, receive_slots);
  WEFT_RETURN_IF_ERROR(links.AddSlots(send_slots, receive_slots));
  auto link = active ? links.Connect(peer, this) : links.Accept(peer, this);
  if (!link.ok()) {
    links.RemoveSlots(send_slots, receive_slots);
    return link.status();
  }
  link_ = *std::move(link);
  table_->entries_[index_].lines = TakeWarmUpOf(link_.get());
  links_ = &links;
  domain_ = domain;
  added_send_slots_ = send_slots;
  window_.Start(agreement.send_window_slots, receive_slots);
  domain_->Promise(receive_slots);
  batch_bytes_ = agreement.batch_bytes & ~static_cast<uint32_t>(kFrameAlignment - 1);
  usual_bytes_ = std::min(batch_bytes_,
                          links.usual_slot_bytes() & ~static_cast<uint32_t>(kFrameAlignment - 1));
  fill_bytes_ = usual_bytes_;
  frames_to_part_ = links.frames_to_part();
  eager_bytes_ = MaxPayloadBytes(batch_bytes_);
  const size_t usual_window = size_t{receive_slots} * usual_bytes_;
  early_.Start(receive_slots, active ? size_t{receive_slots} * batch_bytes_
                                     : std::max(usual_window, kMostEarlyBytes));
  peer_index_ = agreement.peer_index;
  peer_token_ = agreement.peer_token;
  send_sequence_ = receive_sequence_ = 0;
  peer_answers_ = agreement.peer_answers;
  peer_leases_ = agreement.peer_leases;
  request_sender_.Start();
  request_answerer_.Start(&domain->atomic_regions(), &leases_.atomic_regions());
  large_sender_.Start(domain);
  large_receiver_.Start(domain, link_.get());
  return absl::OkStatus();
}

void FramedConnection::StopLink(bool peer_dead) {
  WEFT_CHECK(state_ != State::kOpen);
  ReleaseLink(peer_dead);
  events_ &= static_cast<uint8_t>(~(kLinkUp | kBroken));
  broken_ = absl::OkStatus();
}

void FramedConnection::ReleaseLink(bool peer_dead) {
  if (link_ == nullptr) return;
  reserved_ = false;
  if (slot_.data != nullptr) CancelOpenSlot();
  large_receiver_.Cease();
  if (peer_dead) link_->Abandon();
  table_->entries_[index_].lines = nullptr;
  LeaveWarmUp();
  link_.reset();
  large_receiver_.Stop();
  large_sender_.Stop();
  early_.Clear();
  domain_->Settle(window_.granted());
  links_->RemoveSlots(added_send_slots_, window_.receive_window());
  batch_bytes_ = usual_bytes_ = fill_bytes_ = 0;
  eager_bytes_ = 0;
}

void FramedConnection::Open() {
  WEFT_CHECK(link_ != nullptr && handler_ != nullptr);
  if (state_ != State::kConnecting) return;
  state_ = State::kOpen;
  handler_->OnOpen(*this);
  DeliverEarly();
}

void FramedConnection::Close(std::string_view why) {
  if (state_ == State::kClosed) return;
  Flush();
  state_ = State::kClosed;
  close_reason_ = why;
  Raise(kCloseRequested);
}

void FramedConnection::End(const absl::Status& why, bool peer_dead) {
  WEFT_CHECK(!ended_ && !why.ok());
  if (!peer_dead) Flush();
  state_ = State::kClosed;
  operations_.EndWith(why);
  ReleaseLink(peer_dead);
  WEFT_CHECK(operations_.in_use() == 0);
  request_sender_.End(why);
  leases_.End(why);
  reclaimer_.End();
  table_->Remove(index_);
  table_->dirty_.Remove(this);
  table_->events_.Remove(this);
  ended_ = true;
  if (handler_ != nullptr) handler_->OnClosed(*this, why);
}

void FramedConnection::ListLines(WarmUp* lines) {
  const auto* const begin = reinterpret_cast<const std::byte*>(&state_);
  const auto* const end = reinterpret_cast<const std::byte*>(&stats_ + 1);
  lines->Add(this, 1);
  lines->Add(begin, static_cast<size_t>(end - begin));
  ListAbove(lines);
}

// --- events -------------------------------------------------------------------------------------

void FramedConnection::Raise(Event event) {
  events_ |= event;
  if (!table_->events_.IsLinked(this)) table_->events_.PushBack(this);
}

// Each of the owner's callbacks may be the last thing that happens to this object.
void FramedConnection::RunEvents() {
  const uint8_t events = std::exchange(events_, uint8_t{0});
  if (events & kCloseRequested) return owner_->OnCloseRequested(*this, close_reason_);
  if (events & kBroken) return owner_->OnBroken(*this, broken_);
  if (events & kLinkUp) return owner_->OnLinkUp(*this);
  if (state_ != State::kOpen) return;
  if (events & kAdvanceReads) large_receiver_.Advance();
  if (events & kLeasesOverdue) leases_.EndOverdue();
  if (state_ != State::kOpen) return;  // what Advance() delivered has closed it
  if ((events & kWritable) && std::exchange(wants_writable_, false)) handler_->OnWritable(*this);
}

// The path or the peer failed. A Close() that came first has the word.
void FramedConnection::Break(const absl::Status& why) {
  if (state_ == State::kClosed || !broken_.ok()) return;
  broken_ = why;
  if (state_ == State::kOpen) state_ = State::kClosed;
  Raise(kBroken);
}

void FramedConnection::OnLinkUp() { Raise(kLinkUp); }

void FramedConnection::OnLinkDown(const absl::Status& why) { Break(why); }

void FramedConnection::OnSlotsFree() {
  MarkDirty();
  if (wants_writable_) Raise(kWritable);
  if (std::exchange(reads_refused_, false)) Raise(kAdvanceReads);
}

void FramedConnection::OnLargeReclaimed() {
  if (wants_writable_) Raise(kWritable);
}

void FramedConnection::OnReleased() { Raise(kWritable); }

void FramedConnection::OnOperationFree() {
  if (wants_writable_) Raise(kWritable);
}

// --- one-sided ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Region>> FramedConnection::Register(MutableByteSpan memory,
                                                                   Access access) {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the connection is not open");
  RegionAccount& account = domain_->region_account();
  WEFT_RETURN_IF_ERROR(account.Check(memory.size()));
  absl::StatusOr<std::unique_ptr<Region>> region = links_->Register(memory, access);
  if (region.ok()) account.Charge(region->get());
  if (region.ok() && access == Access::kRemoteReadWrite) {
    domain_->atomic_regions().Add(region->get());
  }
  return region;
}

absl::StatusOr<Posted> FramedConnection::Post(TransferKind kind,
                                              absl::Span<const Transfer> transfers, Operation* op) {
  if (transfers.empty() || transfers.size() > kMaxBatchTransfers) {
    return absl::InvalidArgumentError(StrCat("a batch of ", transfers.size(), " transfers; 1 to ",
                                             kMaxBatchTransfers, " are possible"));
  }
  for (const Transfer& transfer : transfers) WEFT_RETURN_IF_ERROR(CheckTransfer(transfer));
  if (transfers.size() > operations_.capacity()) {
    return absl::InvalidArgumentError(StrCat("a batch of ", transfers.size(),
                                             " transfers exceeds max_outstanding_operations, ",
                                             operations_.capacity()));
  }
  Operation* const taken = operations_.Take(op, static_cast<uint32_t>(transfers.size()));
  if (taken == nullptr) return TooManyOperations();
  absl::StatusOr<Posted> posted = link_->Post(kind, transfers, taken);
  if (posted.ok() && *posted == Posted::kPending) [[likely]]
    return posted;
  operations_.Return(taken);
  // The domain's own bound: OnSlotsFree() tells.
  if (absl::IsResourceExhausted(posted.status())) wants_writable_ = true;
  return posted;
}

absl::Status FramedConnection::TooManyOperations() {
  static const auto* const status = new absl::Status(
      absl::ResourceExhaustedError("too many operations are outstanding: wait for OnWritable()"));
  wants_writable_ = true;
  return *status;
}

absl::Status FramedConnection::CheckTransfer(const Transfer& transfer) const {
  if (state_ != State::kOpen) return absl::FailedPreconditionError("the connection is not open");
  if (transfer.local == nullptr) return absl::InvalidArgumentError("a transfer without a region");
  const RemoteSpan& remote = transfer.remote;
  const size_t size = transfer.local->memory().size();
  if (remote.length == 0 || transfer.local_offset > size ||
      remote.length > size - transfer.local_offset) {
    return absl::InvalidArgumentError(StrCat(remote.length, " bytes at offset ",
                                             transfer.local_offset, " of a region of ", size,
                                             " bytes"));
  }
  if (remote.offset + remote.length < remote.offset) {
    return absl::InvalidArgumentError("the remote span ends beyond 2^64");
  }
  return absl::OkStatus();
}

void FramedConnection::CheckInvariants() const {
  window_.CheckInvariants();
  large_receiver_.CheckInvariants();
  WEFT_CHECK(first_unsent_ <= committed_);
  WEFT_CHECK(due_ || !IsDue());
  WEFT_CHECK(slot_.data != nullptr || (batch_.room() == 0 && batch_.frames() == 0));
  WEFT_CHECK(slot_.data == nullptr || reserved_ || state_ != State::kOpen ||
             table_->dirty_.IsLinked(this));
  if (link_ != nullptr) domain_->CheckInvariants();
}

}  // namespace weft
