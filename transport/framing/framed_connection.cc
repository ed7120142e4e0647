#include "transport/framing/framed_connection.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/status.h"
#include "core/strings.h"
#include "core/trace.h"
#include "transport/framing/refusals.h"
#include "transport/transfer_table.h"

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

// What stands in the place of a link's secret where there is none: numbers that both sides have
// drawn and told each other in the clear.
LinkSecret NumbersOfHandshake(const LinkPeer& peer, bool active, const LinkAgreement& agreement) {
  const Nonce128& client = active ? agreement.receive_proof : agreement.send_proof;
  const Nonce128& server = active ? agreement.send_proof : agreement.receive_proof;
  const uint64_t numbers[] = {client.high, client.low, server.high,
                              server.low,  peer.nonce, peer.nonce_low};
  static_assert(sizeof(numbers) == LinkSecret::size());
  LinkSecret secret;
  for (size_t i = 0; i < std::size(numbers); ++i) {
    StoreLe64(secret.data() + i * sizeof(uint64_t), numbers[i]);
  }
  return secret;
}

}  // namespace

absl::StatusOr<std::unique_ptr<FramedConnection>> FramedConnection::Create(
    ConnectionTable* table, ConnectionOwner* owner, ConnectionHandler* handler,
    const Options& options) {
  std::unique_ptr<FramedConnection> connection(
      new FramedConnection(table, owner, handler, options));
  WEFT_ASSIGN_OR_RETURN(connection->index_, table->Add(&connection->receiver_, options.token));
  connection->ended_ = false;
  return connection;
}

FramedConnection::FramedConnection(ConnectionTable* table, ConnectionOwner* owner,
                                   ConnectionHandler* handler, const Options& options)
    : Connection(&sender_.room(), &remote_, &PrefetchList::None()),
      sender_(this, &table->to_flush()),
      receiver_(this, this, handler, &sender_),
      token_(options.token),
      first_sequence_(options.first_sequence),
      batch_proof_(options.batch_proof),
      table_(table),
      owner_(owner),
      remote_(this, &sender_, table->exports(), options.max_outstanding_operations),
      large_(this, &sender_, &remote_, options.patience) {}

FramedConnection::~FramedConnection() { WEFT_CHECK(ended_); }  // Ours: its owner ends it

// --- links --------------------------------------------------------------------------------------

absl::Status FramedConnection::StartLink(FramingDomain* domain, const LinkPeer& peer, bool active,
                                         const LinkAgreement& agreement) {
  // Ours: owners do nothing for a connection that is closed, and stop the last link
  WEFT_CHECK(state_ == State::kConnecting && link_ == nullptr);
  LinkDomain& links = domain->links();
  WEFT_RETURN_IF_ERROR(CheckAgreement(agreement, links.slot_bytes()));
  WEFT_RETURN_IF_ERROR(PrepareSealing(domain, peer, active, agreement));
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
  prefetch_ = &link_->prefetch();
  RegisterForPrefetch();
  table_->SetLink(index_, prefetch_, links.tells_links() ? this : nullptr);
  domain_ = domain;
  added_send_slots_ = send_slots;
  const bool seals_all = sealing_ != nullptr && sealing_->transfers.has_value();
  BatchTag send_tag;
  BatchTag receive_tag;
  // A batch that is sealed, or comes by a link that is told, needs no other proof.
  if (seals_all) {
    send_tag = &*sealing_->seal.batches_out;
    receive_tag = &*sealing_->seal.batches_in;
  } else if (agreement.has_proofs && !links.tells_links()) {
    send_tag = agreement.send_proof;
    receive_tag = agreement.receive_proof;
  }
  sender_.Start(domain, link_.get(), agreement, send_tag);
  eager_bytes_ = sender_.eager_bytes();
  const size_t usual_window = size_t{receive_slots} * links.usual_slot_bytes();
  receiver_.Start(domain, agreement.receive_sequence, receive_slots,
                  active ? size_t{receive_slots} * agreement.batch_bytes
                         : std::max(usual_window, kMostEarlyBytes),
                  receive_tag);
  remote_.Start(domain, link_.get(), agreement, seals_all ? &*sealing_->transfers : nullptr);
  large_.Start(domain, link_.get(), client(), sealing_ == nullptr ? nullptr : &sealing_->seal);
  return absl::OkStatus();
}

absl::Status FramedConnection::PrepareSealing(FramingDomain* domain, const LinkPeer& peer,
                                              bool active, const LinkAgreement& agreement) {
  sealing_.reset();
  const PathKind kind = domain->links().path().kind;
  if (!IsSealedByFraming(kind)) return absl::OkStatus();
  const auto seal_with = [&](const LinkSecret& secret, bool only_large) {
    sealing_.reset(new Sealing{{secret, active, only_large}, std::nullopt});
    if (!only_large) sealing_->transfers.emplace(&sender_, &domain->sealed_regions());
  };
  if (peer.secret.has_value()) {
    seal_with(*peer.secret, /*only_large=*/false);
  } else if (agreement.only_sealed) {
    return absl::FailedPreconditionError("encryption is required, and the link has no secret");
  } else if (agreement.has_proofs && !TransfersOf(kind).fetches_whole) {
    seal_with(NumbersOfHandshake(peer, active, agreement), /*only_large=*/true);
  }
  return absl::OkStatus();
}

void FramedConnection::StopLink(bool peer_dead) {
  WEFT_CHECK(state_ != State::kOpen);  // Ours: an open connection has its path for good
  ReleaseLink(peer_dead);
  events_ &= static_cast<uint8_t>(~(kLinkUp | kBroken));
  broken_ = absl::OkStatus();
}

void FramedConnection::ReleaseLink(bool peer_dead) {
  if (link_ == nullptr) return;
  sender_.Stop();
  large_.Cease();
  if (peer_dead) link_->Abandon();
  eager_bytes_ = 0;
  prefetch_ = &PrefetchList::None();
  table_->SetLink(index_, prefetch_, nullptr);
  remote_.Stop();
  link_.reset();
  large_.Stop();
  receiver_.Stop();
  sealing_.reset();
  domain_->links().RemoveSlots(added_send_slots_, sender_.window().receive_window());
}

void FramedConnection::SetState(State state) {
  state_ = state;
  if (state == State::kOpen) {
    sender_.Open();
  } else {
    sender_.Shut();
    large_.LeaveLine();
  }
}

void FramedConnection::Open() {
  // Ours: owners open when both links are up
  WEFT_CHECK(link_ != nullptr && receiver_.handler() != nullptr);
  if (state_ != State::kConnecting) return;
  SetState(State::kOpen);
  receiver_.handler()->OnOpen(*this);
  receiver_.Open();
}

void FramedConnection::Close(std::string_view why) {
  if (state_ == State::kClosed) return;
  Flush();
  SetState(State::kClosed);
  close_reason_ = why;
  Raise(kCloseRequested);
}

void FramedConnection::End(const absl::Status& why, bool peer_dead) {
  WEFT_CHECK(!ended_ && !why.ok());  // Ours: ended once, for a reason
  if (!peer_dead) Flush();
  SetState(State::kClosed);
  remote_.EndOperationsWith(why);
  ReleaseLink(peer_dead);
  remote_.End(why);
  table_->Remove(index_);
  sender_.Unlist();
  table_->with_events().Remove(this);
  ended_ = true;
  if (receiver_.handler() != nullptr) receiver_.handler()->OnClosed(*this, why);
}

void FramedConnection::RegisterForPrefetch() {
  const auto* const begin = reinterpret_cast<const std::byte*>(&sender_);
  const auto* const end = reinterpret_cast<const std::byte*>(&receiver_ + 1);
  prefetch_->Register(static_cast<Connection*>(this), 1);
  prefetch_->Register(begin, static_cast<size_t>(end - begin));
}

// --- events -------------------------------------------------------------------------------------

void FramedConnection::Raise(Event event) {
  events_ |= event;
  IntrusiveList<FramedConnection, EventTag>& list = table_->with_events();
  if (!list.IsLinked(this)) list.PushBack(this);
}

// Each of the owner's callbacks may be the last thing that happens to this object.
void FramedConnection::RunEvents() {
  const uint8_t events = std::exchange(events_, uint8_t{0});
  if (events & kCloseRequested) return owner_->OnCloseRequested(*this, close_reason_);
  if (events & kBroken) return owner_->OnBroken(*this, broken_);
  if (events & kLinkUp) {
    facts_.path.kernel_tls = link_->kernel_tls();
    return owner_->OnLinkUp(*this);
  }
  if (state_ != State::kOpen) return;
  if (events & kAdvanceReads) large_.AdvanceReads();
  if ((events & kLineTurn) && state_ == State::kOpen) large_.OnLineTurn();
  if (events & kLeasesOverdue) remote_.EndOverdueLeases();
  if (state_ != State::kOpen) return;  // what was read, and delivered, has closed it
  if ((events & kWritable) && sender_.awaits_room()) {
    sender_.set_awaits_room(false);
    receiver_.handler()->OnWritable(*this);
  }
}

// The path or the peer failed. A Close() that came first has the word.
void FramedConnection::Break(const absl::Status& why) {
  if (state_ == State::kClosed || !broken_.ok()) return;
  broken_ = why;
  if (state_ == State::kOpen) SetState(State::kClosed);
  Raise(kBroken);
}

WEFT_COLD void FramedConnection::OnMalformed(std::string_view what) {
  table_->CountMalformed();
  Break(absl::DataLossError(StrCat("the peer broke the protocol: ", what)));
}

void FramedConnection::OnSlotsFree() {
  sender_.FlushAtTurnsEnd();
  OnRoom();
  large_.OnSlotsFree();
}

void FramedConnection::OnRoom() {
  if (sender_.awaits_room()) Raise(kWritable);
}

void FramedConnection::OnGrant(ByteSpan grant) {
  if (state_ != State::kOpen) return;
  const absl::Status status = remote_.OnGrant(grant);
  if (!status.ok()) Break(status);
}

// --- messages -----------------------------------------------------------------------------------

absl::StatusOr<std::byte*> FramedConnection::Reserve(size_t bytes) {
  WEFT_DCHECK(!sender_.reserved());  // User: one reservation at a time
  if (sender_.seals() && remote_.holds_messages()) return Refuse(&sender_);
  if (bytes > sender_.eager_bytes()) return ReserveLarge(bytes);
  std::byte* const space = sender_.Reserve(bytes);
  if (space == nullptr) return Refuse(&sender_);
  return space;
}

uint64_t FramedConnection::Commit(size_t bytes) {
  // User: one reservation at a time
  WEFT_DCHECK(sender_.reserved() && bytes <= sender_.reserved_bytes());
  if (large_.reserved()) {
    CommitLarge(bytes);
  } else {
    sender_.Commit(bytes);
  }
  sender_.FlushAtTurnsEnd();
  Trace(TracePoint::kWritten);
  return room_.Commit();
}

void FramedConnection::Abandon() {
  WEFT_DCHECK(sender_.reserved());  // User: one reservation at a time
  if (large_.reserved()) return large_.Abandon();
  sender_.Abandon();
}

MessageSpace FramedConnection::AppendSlowly(size_t bytes) {
  WEFT_DCHECK(!sender_.reserved());  // User: one reservation at a time
  if (bytes > sender_.eager_bytes()) [[unlikely]]
    return AppendLarge(bytes);
  if (sender_.seals() && remote_.holds_messages()) [[unlikely]] {
    sender_.set_awaits_room(true);
    return {};
  }
  return sender_.AppendToNextSlot(bytes);
}

WEFT_COLD absl::StatusOr<std::byte*> FramedConnection::ReserveLarge(size_t bytes) {
  if (bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError("the message is larger than 64 MiB: use one-sided transfers");
  }
  std::byte* const space = large_.Reserve(bytes);
  if (space == nullptr) return Refuse(&sender_);
  return space;
}

void FramedConnection::CommitLarge(size_t bytes) {
  bool is_large = false;
  const absl::Status committed = large_.Commit(bytes, &is_large);
  if (!committed.ok()) return Break(committed);
  large_sent_ += is_large;
}

WEFT_COLD MessageSpace FramedConnection::AppendLarge(size_t bytes) {
  const absl::StatusOr<std::byte*> space = Reserve(bytes);
  if (!space.ok()) return {};
  const uint64_t number = Commit(bytes);
  if (state_ != State::kOpen) return {};
  return {*space, number};
}

// --- what the parts ask for ---------------------------------------------------------------------

WEFT_COLD bool FramedConnection::AppendDue() {
  large_.AppendDue();
  if (state_ == State::kOpen) remote_.AppendDue();
  return large_.has_due() || remote_.has_due();
}

bool FramedConnection::OnFrame(const Frame& frame) {
  switch (frame.kind) {
    case FrameKind::kLargeOffer:
      return large_.OnOffer(frame);
    case FrameKind::kLargeDone:
      return large_.OnDone(frame);
    case FrameKind::kRequest:
      return remote_.OnRequest(frame);
    case FrameKind::kReply:
      return remote_.OnReply(frame);
    default:
      return remote_.OnSealedFrame(frame);
  }
}

void FramedConnection::OnLargeMessage(ByteSpan message, uint64_t offered_ns) {
  if (state_ != State::kOpen) return;
  ++large_received_;
  announced_ns_ = offered_ns;
  receiver_.handler()->OnMessage(*this, message);
  announced_ns_ = 0;
}

ConnectionStats FramedConnection::stats() const {
  ConnectionStats stats;
  stats.messages_committed = room_.committed();
  stats.messages_sent = sender_.first_unsent();
  stats.messages_received = receiver_.messages() + large_received_;
  stats.batches_sent = sender_.batches_sent();
  stats.batches_received = receiver_.batches();
  stats.large_sent = large_sent_;
  stats.large_received = large_received_;
  stats.credit_stalls = sender_.credit_stalls();
  stats.large_under_way = large_.under_way();
  return stats;
}

void FramedConnection::CheckInvariants() const {
  sender_.CheckInvariants();
  large_.CheckInvariants();
  // Ours: invariants, which tests ask for
  WEFT_CHECK(sender_.due() || !(large_.has_due() || remote_.has_due()));
  if (link_ != nullptr) domain_->CheckInvariants();
}

}  // namespace weft
