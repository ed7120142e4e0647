#include "transport/framing/framed_remote_access.h"

#include <utility>

#include "core/check.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/refusals.h"
#include "transport/transfer_check.h"

namespace weft {
namespace {

const absl::Status& OnlySealed() {
  static constinit ProcessWide<absl::Status> status;
  return status.Get([] {
    return absl::FailedPreconditionError(
        "this side or the peer requires encryption (SecurityOptions::require_encryption), and a "
        "card would read and write the peer's memory in the clear: lend the memory to calls, whose "
        "payloads are sealed, or use shm or tcp");
  });
}

}  // namespace

// --- life ---------------------------------------------------------------------------------------

void FramedRemoteAccess::Start(FramingDomain* domain, Link* link, const LinkAgreement& agreement,
                               SealedTransfers* sealed) {
  domain_ = domain;
  sealed_ = sealed;
  // Regions of sealed connections are others.
  path_number_ = domain->path_number() + (sealed == nullptr ? 0 : kMaxPathNumbers / 2);
  link_ = link;
  reads_prove_writes_ = link->reads_prove_writes();
  only_sealed_ = sealed != nullptr && agreement.only_sealed;
  peer_answers_ = agreement.peer_answers;
  peer_leases_ = agreement.peer_leases && !only_sealed_;
  requests_.Start();
  answerer_.Start(&domain->atomic_regions(), &leases_.atomic_regions());
}

void FramedRemoteAccess::Stop() {
  link_ = nullptr;
  if (SealedTransfers* const sealed = std::exchange(sealed_, nullptr)) sealed->End();
}

void FramedRemoteAccess::End(const absl::Status& why) {
  // Ours: the link has completed them (link.h)
  WEFT_CHECK(link_ == nullptr && operations_.in_use() == 0);
  requests_.End(why);
  leases_.End(why);
  reclaimer_.End();
}

// --- one-sided ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<Region>> FramedRemoteAccess::Register(MutableByteSpan memory,
                                                                     Access access) {
  if (!sender_.open()) return NotOpen();
  RegionAccount& account = domain_->region_account();
  WEFT_RETURN_IF_ERROR(account.Check(memory.size()));
  if (sealed_ != nullptr && access != Access::kLocalOnly) {
    auto sealed = std::make_unique<SealedRegion>(memory, access, domain_->NewRegionKey());
    domain_->sealed_regions().Add(sealed.get());
    account.Charge(sealed.get());
    if (access == Access::kRemoteReadWrite) domain_->atomic_regions().Add(sealed.get());
    return std::unique_ptr<Region>(std::move(sealed));
  }
  absl::StatusOr<std::unique_ptr<Region>> region = domain_->links().Register(memory, access);
  if (region.ok()) account.Charge(region->get());
  if (region.ok() && access == Access::kRemoteReadWrite) {
    domain_->atomic_regions().Add(region->get());
  }
  return region;
}

absl::StatusOr<Posted> FramedRemoteAccess::Post(TransferKind kind,
                                                absl::Span<const Transfer> transfers,
                                                Operation* op) {
  if (transfers.empty() || transfers.size() > kMaxBatchTransfers) {
    return absl::InvalidArgumentError(StrCat("a batch of ", transfers.size(), " transfers; 1 to ",
                                             kMaxBatchTransfers, " are possible"));
  }
  if (!sender_.open()) return NotOpen();
  for (const Transfer& transfer : transfers) WEFT_RETURN_IF_ERROR(CheckTransfer(transfer));
  if (sealed_ != nullptr) WEFT_RETURN_IF_ERROR(CheckSealing(transfers));
  if (transfers.size() > operations_.capacity()) {
    return absl::InvalidArgumentError(StrCat("a batch of ", transfers.size(),
                                             " transfers exceeds max_outstanding_operations, ",
                                             operations_.capacity()));
  }
  if (holds_messages()) return Refuse(&sender_);  // what is posted now would keep it back
  Operation* const taken = operations_.Take(op, static_cast<uint32_t>(transfers.size()));
  if (taken == nullptr) return TooManyOperations();
  if (sealed_ != nullptr && IsSealedSpan(transfers[0].remote)) {
    sealed_->Post(kind, transfers, taken);
    return Posted::kPending;
  }
  absl::StatusOr<Posted> posted = link_->Post(kind, transfers, taken);
  if (posted.ok() && *posted == Posted::kPending) [[likely]]
    return posted;
  operations_.Return(taken);
  // The domain's own bound: OnSlotsFree() tells.
  if (absl::IsResourceExhausted(posted.status())) sender_.set_awaits_room(true);
  return posted;
}

// Of a sealed connection: engines or a card, not both in one post.
absl::Status FramedRemoteAccess::CheckSealing(absl::Span<const Transfer> transfers) const {
  const bool sealed = IsSealedSpan(transfers[0].remote);
  for (const Transfer& transfer : transfers) {
    if (IsSealedSpan(transfer.remote) != sealed) {
      return absl::InvalidArgumentError(
          "a batch of transfers of which some go by the card and some are sealed");
    }
    if (!sealed && IsSealedSpan(transfer.local->remote())) {
      return absl::InvalidArgumentError(
          "a transfer by the card from or to memory that this connection has registered for its "
          "peer, which no card knows: register it as kLocalOnly too");
    }
  }
  if (sealed || !only_sealed_) return absl::OkStatus();
  return OnlySealed();
}

absl::Status FramedRemoteAccess::TooManyOperations() {
  static constinit ProcessWide<absl::Status> status;
  sender_.set_awaits_room(true);
  return status.Get([] {
    return absl::ResourceExhaustedError(
        "too many operations are outstanding: wait for OnWritable()");
  });
}

absl::StatusOr<Posted> FramedRemoteAccess::WriteThenSend(absl::Span<const Transfer> transfers,
                                                         ByteSpan message, Operation* op) {
  WEFT_DCHECK(!sender_.reserved());  // User: no reservation is open
  const size_t most = sender_.eager_bytes();
  if (sender_.open() && (message.empty() || message.size() > most)) {
    return absl::InvalidArgumentError(StrCat("a message of ", message.size(), " bytes; 1 to ", most,
                                             " (eager_bytes) are possible"));
  }
  if (sealed_ != nullptr && !transfers.empty() && IsSealedSpan(transfers[0].remote)) {
    absl::StatusOr<Posted> posted = Post(TransferKind::kWrite, transfers, op);
    if (posted.ok()) sealed_->SendBehind(message);
    return posted;
  }
  // The message's place is taken first: it cannot be refused once the transfers are on their way.
  if (!sender_.MakeRoom(FrameBytes(message.size()))) return Refuse(&sender_);
  absl::StatusOr<Posted> posted = Post(TransferKind::kWrite, transfers, op);
  if (!posted.ok()) {
    sender_.CancelEmptyBatch();
    return posted;
  }
  sender_.AppendMessage(message);
  sender_.room().Commit();
  sender_.SendNow();
  return posted;
}

// --- requests -----------------------------------------------------------------------------------

absl::Status FramedRemoteAccess::FetchAdd(const RemoteSpan& remote, uint64_t operand,
                                          AtomicOperation* op) {
  return AskAtomic({0, RequestKind::kFetchAdd, remote.key, remote.offset, operand, 0}, remote, op);
}

absl::Status FramedRemoteAccess::CompareSwap(const RemoteSpan& remote, uint64_t expected,
                                             uint64_t desired, AtomicOperation* op) {
  return AskAtomic({0, RequestKind::kCompareSwap, remote.key, remote.offset, desired, expected},
                   remote, op);
}

absl::Status FramedRemoteAccess::Probe(Operation* op) {
  return Ask({0, RequestKind::kProbe, 0, 0, 0, 0}, op, nullptr);
}

absl::Status FramedRemoteAccess::AskAtomic(const Request& request, const RemoteSpan& remote,
                                           AtomicOperation* op) {
  if (remote.length != sizeof(uint64_t)) {
    return absl::InvalidArgumentError("an atomic operation is on a remote span of 8 bytes");
  }
  return Ask(request, nullptr, op);
}

absl::Status FramedRemoteAccess::Ask(Request request, Operation* probe, AtomicOperation* atomic) {
  WEFT_DCHECK(!sender_.reserved());  // User: no reservation is open
  if (!sender_.open()) return NotOpen();
  if (!peer_answers_) {
    return absl::UnimplementedError("the peer's release of Weft answers no atomics or probes");
  }
  // A slot that it opened would have room for messages, before the one that waits.
  if (requests_.full() || holds_messages() || !sender_.MakeRoom(FrameBytes(Request::kBytes))) {
    return Refuse(&sender_);
  }
  requests_.Ask(&request, probe, atomic);
  EncodeRequest(sender_.Append(Request::kBytes, FrameKind::kRequest), request);
  sender_.FlushAtTurnsEnd();
  return absl::OkStatus();
}

bool FramedRemoteAccess::OnRequest(const Frame& frame) {
  Request request;
  sender_.SetDue();
  return DecodeRequest(frame.payload, &request) && answerer_.OnRequest(request);
}

bool FramedRemoteAccess::OnReply(const Frame& frame) {
  Reply reply;
  if (!DecodeReply(frame.payload, &reply) || !requests_.OnReply(reply)) return false;
  host_->OnRoom();
  return true;
}

void FramedRemoteAccess::AppendReplies() {
  Reply reply;
  while (answerer_.NextReply(&reply) && sender_.MakeRoom(FrameBytes(Reply::kBytes))) {
    EncodeReply(sender_.Append(Reply::kBytes, FrameKind::kReply), reply);
    answerer_.Replied();
  }
}

void FramedRemoteAccess::AppendDue() {
  AppendReplies();
  if (sealed_ != nullptr) {
    const bool held = sealed_->message_waits();
    sealed_->AppendDue();
    if (held && !sealed_->message_waits()) host_->OnRoom();
  }
  if (reclaimer_.wants_advance()) reclaimer_.Advance();
}

// --- reclaiming ---------------------------------------------------------------------------------

bool FramedRemoteAccess::Reclaim(std::unique_ptr<Region> region, Operation* op) {
  if (IsSealedSpan(region->remote())) return true;  // it goes, and only this engine has touched it
  if (link_ == nullptr || link_->Reclaim(std::move(region))) return true;
  reclaimer_.Add(op);
  return false;
}

bool FramedRemoteAccess::ReclaimOfLarge(std::unique_ptr<Region> region, Operation* op) {
  if (!peer_answers_ && !HasFence()) return true;
  return Reclaim(std::move(region), op);
}

void FramedRemoteAccess::AdvanceSoon() {
  sender_.SetDue();
  if (sender_.open()) sender_.FlushAtTurnsEnd();
}

absl::Status FramedRemoteAccess::SendFenceForReclaimer(Operation* passed) {
  return sender_.SendFence(passed) ? absl::OkStatus() : absl::UnavailableError("not now");
}

// A reservation that is open keeps the batch: the turn's end comes back to it.
absl::Status FramedRemoteAccess::AskForReclaimer(Operation* probe) {
  sender_.SetDue();  // until there is room for it
  if (sender_.reserved() || !sender_.open()) {
    if (sender_.open()) sender_.FlushAtTurnsEnd();
    return absl::UnavailableError("not now");
  }
  const bool awaited_room = sender_.awaits_room();
  absl::Status asked = Probe(probe);
  sender_.set_awaits_room(awaited_room);  // nobody who was refused waits for OnWritable()
  return asked;
}

// --- leases -------------------------------------------------------------------------------------

absl::Status FramedRemoteAccess::CheckLeases() const {
  if (!sender_.open()) return NotOpen();
  if (only_sealed_) return OnlySealed();
  if (peer_leases_ && leases_.available()) return absl::OkStatus();
  return absl::UnimplementedError("the peer's release of Weft knows no leases");
}

absl::Status FramedRemoteAccess::Resolve(const RegionHandle& handle, uint64_t layout,
                                         uint64_t lease_ns, Lease* lease) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Resolve(handle, layout, lease_ns, lease);
}

absl::Status FramedRemoteAccess::Renew(uint64_t lease_ns, Lease* lease) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Renew(lease_ns, lease);
}

absl::Status FramedRemoteAccess::Derive(const RegionHandle& handle, uint64_t offset,
                                        uint64_t length, Rights rights, uint64_t lifetime_ns,
                                        Derivation* derivation) {
  WEFT_RETURN_IF_ERROR(CheckLeases());
  return leases_.held().Derive(handle, offset, length, rights, lifetime_ns, derivation);
}

absl::Status FramedRemoteAccess::OnGrant(ByteSpan grant) {
  if (!peer_leases_) {
    return absl::DataLossError("the peer broke the protocol: a grant, which was not agreed on");
  }
  return leases_.OnGrant(grant);
}

void FramedRemoteAccess::SendGrant(ByteSpan grant) {
  if (sender_.open()) host_->SendGrant(grant);
}

absl::StatusOr<std::unique_ptr<Region>> FramedRemoteAccess::RegisterLease(MutableByteSpan memory,
                                                                          Access access) {
  return domain_->links().Register(memory, access);
}

bool FramedRemoteAccess::ReclaimLease(std::unique_ptr<Region> region, Operation* op) {
  return Reclaim(std::move(region), op);
}

}  // namespace weft
