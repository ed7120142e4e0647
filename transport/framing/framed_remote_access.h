// Access to memory of one connection, both ways: one-sided operations, atomics and probes, leases,
// and the end of what the peer could reach here.
//
// It does what RemoteAccess says of them. Requests, replies and fences travel in batches of the
// sender; grants beside the data path, by the host.
//
// Threads: one engine's. Lifetime: a member of its connection; host, sender and exports outlive it.
// Errors: as RemoteAccess; a peer that breaks the rules is false, or an error of OnGrant().
// Invariants: every operation, request and reclaimed region ends once, with End() at the latest.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/framing/batch.h"
#include "transport/framing/batch_sender.h"
#include "transport/framing/connection_leases.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/operation_slots.h"
#include "transport/framing/reclaimer.h"
#include "transport/framing/requests.h"
#include "transport/framing/sealed_transfers.h"
#include "transport/link.h"
#include "transport/remote_access.h"

namespace weft {

class FramedRemoteAccess final : public RemoteAccess,
                                 private OperationSlots::Host,
                                 private Reclaimer::Host,
                                 private ConnectionLeases::Host {
 public:
  class Host {
   public:
    // There may be room again for who was refused.
    virtual void OnRoom() = 0;
    // EndOverdueLeases() soon, from Transport::Poll().
    virtual void EndOverdueSoon() = 0;
    // Brings it to the peer's OnGrant().
    virtual void SendGrant(ByteSpan grant) = 0;
    // As Connection.
    virtual void Close(std::string_view why) = 0;
    // PathInfo::client.
    virtual uint64_t client() const = 0;

   protected:
    ~Host() = default;
  };

  // `exports` may be null: no leases.
  FramedRemoteAccess(Host* host, BatchSender* sender, ExportTable* exports,
                     uint32_t max_outstanding_operations)
      : host_(host),
        sender_(*sender),
        operations_(this, max_outstanding_operations),
        leases_(this, exports),
        reclaimer_(this) {}
  // --- life -------------------------------------------------------------------------------------

  // `sealed`: carries what a card must not; null: the connection is not sealed. It outlives Stop().
  void Start(FramingDomain* domain, Link* link, const LinkAgreement& agreement,
             SealedTransfers* sealed = nullptr);
  // Operations that fail from now on fail with `why`. Before the link is destroyed.
  void EndOperationsWith(const absl::Status& why) { operations_.EndWith(why); }
  // The link is gone.
  void Stop();
  // Everything else ends. REQUIRES: Stop().
  void End(const absl::Status& why);

  // --- RemoteAccess -----------------------------------------------------------------------------

  absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory, Access access) override;
  absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                              Operation* op) override;
  bool MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) override {
    return sender_.open() && sealed_ == nullptr && link_->MoveNow(kind, local, remote);
  }
  absl::StatusOr<Posted> WriteThenSend(absl::Span<const Transfer> transfers, ByteSpan message,
                                       Operation* op) override;
  bool Reclaim(std::unique_ptr<Region> region, Operation* op) override;
  absl::Status Resolve(const RegionHandle& handle, uint64_t layout, uint64_t lease_ns,
                       Lease* lease) override;
  absl::Status Renew(uint64_t lease_ns, Lease* lease) override;
  void Return(Lease* lease) override { leases_.held().Return(lease); }
  bool peer_uses_leases() const override { return leases_.has_granted(); }
  absl::Status Derive(const RegionHandle& handle, uint64_t offset, uint64_t length, Rights rights,
                      uint64_t lifetime_ns, Derivation* derivation) override;
  absl::Status FetchAdd(const RemoteSpan& remote, uint64_t operand, AtomicOperation* op) override;
  absl::Status CompareSwap(const RemoteSpan& remote, uint64_t expected, uint64_t desired,
                           AtomicOperation* op) override;
  absl::Status Probe(Operation* op) override;

  // As Reclaim(), of a large message's buffer. A peer of a release that answers no probes is
  // trusted where there is no fence: without, its large messages would come to a stand.
  bool ReclaimOfLarge(std::unique_ptr<Region> region, Operation* op);

  // --- of the peer ------------------------------------------------------------------------------

  [[nodiscard]] bool OnRequest(const Frame& frame);
  [[nodiscard]] bool OnReply(const Frame& frame);
  absl::Status OnGrant(ByteSpan grant);
  [[nodiscard]] bool OnSealedFrame(const Frame& frame) {
    return sealed_ != nullptr && sealed_->OnFrame(frame);
  }
  // Until what WriteThenSend() has taken has left, no other message may be appended, and nothing
  // that opens a slot for one.
  bool holds_messages() const { return sealed_ != nullptr && sealed_->message_waits(); }

  // --- of the turn ------------------------------------------------------------------------------

  // Appends replies, and asks or fences for what is to be reclaimed, as far as there is room.
  void AppendDue();
  bool has_due() const {
    return answerer_.has_reply() || reclaimer_.wants_advance() ||
           (sealed_ != nullptr && sealed_->has_due());
  }
  void EndOverdueLeases() { leases_.EndOverdue(); }

 private:
  absl::Status CheckSealing(absl::Span<const Transfer> transfers) const;
  absl::Status TooManyOperations();
  absl::Status CheckLeases() const;
  absl::Status AskAtomic(const Request& request, const RemoteSpan& remote, AtomicOperation* op);
  absl::Status Ask(Request request, Operation* probe, AtomicOperation* atomic);
  void AppendReplies();

  // OperationSlots::Host
  void OnOperationFree() override { host_->OnRoom(); }
  // Reclaimer::Host
  bool HasFence() const override { return link_ != nullptr && link_->has_fence(); }
  absl::Status SendFenceForReclaimer(Operation* passed) override;
  absl::Status AskForReclaimer(Operation* probe) override;
  void AdvanceSoon() override;
  // ConnectionLeases::Host
  void SendGrant(ByteSpan grant) override;
  void EndOverdueSoon() override { host_->EndOverdueSoon(); }
  absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                        Access access) override;
  bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) override;
  uint32_t peer_tenant() const override { return tenant(); }
  uint64_t peer_client() const override { return host_->client(); }
  void EndConnection(std::string_view why) override { host_->Close(why); }

  Host* const host_;
  BatchSender& sender_;
  FramingDomain* domain_ = nullptr;
  Link* link_ = nullptr;  // null: there is none (any more)
  SealedTransfers* sealed_ = nullptr;
  bool only_sealed_ = false;
  bool peer_answers_ = false;
  bool peer_leases_ = false;
  OperationSlots operations_;
  RequestSender requests_;
  RequestAnswerer answerer_;
  ConnectionLeases leases_;
  Reclaimer reclaimer_;
};

}  // namespace weft
