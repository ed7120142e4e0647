// A Connection made of a Link: batches, credits, large messages.
//
// Who brings connections up (the control protocol, the simulated network) owns them and decides
// about their life; this class does everything between. The owner's road:
//
//   Create()      takes an index in the table; index(), token(), first_sequence() and batch_proof()
//                 go into the hello.
//   StartLink()   when both sides know each other's; OnLinkUp() or OnBroken() follow. A path that
//                 failed, or takes too long, is dropped with StopLink() and another one started.
//   Open()        when both links are up, as the owners tell each other: OnOpen() for the handler.
//                 (Batches of a peer that opened earlier are kept until then.)
//   End()         the only end: OnClosed() for the handler, everything given back. Then delete it.
//
//   state            from                          to
//   kConnecting      Create()                      Open() -> kOpen; Close(), End() -> kClosed
//   kOpen            Open()                        Close(), End(), a broken link or protocol
//   kClosed          nothing is sent or delivered any more; the owner calls End()
//
// Where the handshake has made a secret for the link, and nothing below encrypts (seal.h), all that
// leaves is sealed, but for one-sided operations on leases. Where there is no secret, and a read
// that has succeeded may have brought less than it should (TransferTable::fetches_whole), large
// messages alone are sealed, under a key that anybody can compute who has read the handshake: it
// hides nothing, and what is delivered is what was sent, all of it.
//
// It is made of a sender and a receiver of batches, large messages, and access to memory, each with
// a state of its own; what is here is the life of the link and of the connection.
//
// Threads: one engine's. Lifetime: as above; owner, handler, table and domains outlive it.
// Errors: as connection.h says; a peer that breaks the rules gets DATA_LOSS for this connection.
// Invariants: those of its parts; first_unsent() <= messages committed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/huge_page_arena.h"
#include "core/intrusive_list.h"
#include "transport/framing/batch_receiver.h"
#include "transport/framing/batch_sender.h"
#include "transport/framing/connection_owner.h"
#include "transport/framing/connection_table.h"
#include "transport/framing/framed_remote_access.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/large_messages.h"
#include "transport/framing/seal.h"
#include "transport/framing/sealed_transfers.h"
#include "transport/link.h"
#include "transport/transport.h"

namespace weft {

class FramedConnection final : public Connection,
                               public ListNode<EventTag>,
                               public InHugePageArena,
                               private LinkHandler,
                               private BatchSender::Host,
                               private BatchReceiver::Host,
                               private LargeMessages::Host,
                               private FramedRemoteAccess::Host {
 public:
  struct Options {
    // Unpredictable, and so is batch_proof: no stranger's batch is taken for the peer's where a
    // provider tells nothing.
    uint32_t token = 0;
    uint32_t first_sequence = 0;                // of the peer's batches, if it takes part in that
    uint32_t max_outstanding_operations = 128;  // 1..1024
    LargePatience patience = {};
    Nonce128 batch_proof = {};  // what the peer's batches end in, if it takes part in that
  };

  // RESOURCE_EXHAUSTED: the table is full. `handler` may be null until Open() or, first, End().
  static absl::StatusOr<std::unique_ptr<FramedConnection>> Create(ConnectionTable* table,
                                                                  ConnectionOwner* owner,
                                                                  ConnectionHandler* handler,
                                                                  const Options& options);
  ~FramedConnection() override;  // REQUIRES: End() was called.

  // --- for the owner ----------------------------------------------------------------------------

  uint32_t index() const { return index_; }
  uint32_t token() const { return token_; }
  uint32_t first_sequence() const { return first_sequence_; }
  const Nonce128& batch_proof() const { return batch_proof_; }
  void set_handler(ConnectionHandler* handler) { receiver_.set_handler(handler); }
  ConnectionFacts& facts() { return facts_; }
  // For the table: tells owner and handler what has come about.
  void RunEvents();

  // An error (RESOURCE_EXHAUSTED, UNAVAILABLE, INVALID_ARGUMENT for an agreement out of bounds,
  // from the peer): nothing was started. REQUIRES: state() == kConnecting, and no link.
  absl::Status StartLink(FramingDomain* domain, const LinkPeer& peer, bool active,
                         const LinkAgreement& agreement);
  // Drops a path that is not open yet, if there is one. `peer_dead`: Link::Abandon() first.
  void StopLink(bool peer_dead = false);
  // The peer is gone: no provider call is made on its behalf any more. End() follows soon.
  void AbandonLink() {
    if (link_ != nullptr) link_->Abandon();
  }

  // What the peer's SendGrant() has sent; nothing to do unless open. From Transport::Poll().
  void OnGrant(ByteSpan grant);

  // Unless closed: OnOpen(), and OnMessage() for what came early. REQUIRES: link up; a handler.
  void Open();

  // Ends everything: the link, with Link::Abandon() first if `peer_dead`; outstanding operations
  // complete; large messages are forgotten; OnClosed(why) for the handler, if there is one.
  // REQUIRES: not inside a callback of this connection other than ConnectionOwner's; !why.ok().
  void End(const absl::Status& why, bool peer_dead);

  // --- Connection -------------------------------------------------------------------------------

  absl::StatusOr<std::byte*> Reserve(size_t bytes) override;
  uint64_t Commit(size_t bytes) override;
  void Abandon() override;
  void Flush() override { sender_.Flush(); }
  uint64_t first_unsent() const override { return sender_.first_unsent(); }
  std::shared_ptr<const void> KeepMessage() override { return large_.KeepDelivered(); }
  void Close(std::string_view why) override;
  ConnectionStats stats() const override;

  // For tests and diagnosis:
  const CreditWindow& window() const { return sender_.window(); }
  void CheckInvariants() const;

 private:
  // What RunEvents() has to tell, as bits of events_.
  enum Event : uint8_t {
    kLinkUp = 1,
    kBroken = 2,
    kCloseRequested = 4,
    kWritable = 8,
    kAdvanceReads = 16,
    kLeasesOverdue = 32,
    kLineTurn = 64,
  };

  FramedConnection(ConnectionTable* table, ConnectionOwner* owner, ConnectionHandler* handler,
                   const Options& options);

  absl::StatusOr<std::byte*> ReserveLarge(size_t bytes);
  MessageSpace AppendSlowly(size_t bytes) override;
  MessageSpace AppendLarge(size_t bytes);
  void CommitLarge(size_t bytes);
  void Raise(Event event);
  void Break(const absl::Status& why);
  void ReleaseLink(bool peer_dead);
  void SetState(State state);
  absl::Status PrepareSealing(FramingDomain* domain, const LinkPeer& peer, bool active,
                              const LinkAgreement& agreement);
  void RegisterForPrefetch();

  // LinkHandler
  void OnLinkUp() override { Raise(kLinkUp); }
  void OnLinkDown(const absl::Status& why) override { Break(why); }
  void OnSlotsFree() override;
  // The parts' hosts
  bool AppendDue() override;
  bool OnFrame(const Frame& frame) override;
  void OnMalformed(std::string_view what) override;
  void OnRoom() override;
  void OnLargeMessage(ByteSpan message, uint64_t offered_ns) override;
  void OnLargeFailed(const absl::Status& why) override { Break(why); }
  void AdvanceReadsSoon() override { Raise(kAdvanceReads); }
  void LineTurnSoon() override { Raise(kLineTurn); }
  uint64_t Turn() const override { return table_->turns(); }
  void EndOverdueSoon() override { Raise(kLeasesOverdue); }
  uint64_t client() const override { return path().client; }
  void SendGrant(ByteSpan grant) override { owner_->SendGrant(*this, grant); }

  // What a message touches beside the first cache line, of Connection.
  alignas(kCacheLineBytes) BatchSender sender_;
  BatchReceiver receiver_;

  // The rest.
  uint8_t events_ = 0;
  bool ended_ = true;  // until Create() succeeds
  const uint32_t token_;
  const uint32_t first_sequence_;
  const Nonce128 batch_proof_;
  uint32_t index_ = 0;
  uint32_t added_send_slots_ = 0;  // AddSlots() to undo
  ConnectionTable* const table_;
  ConnectionOwner* const owner_;
  std::unique_ptr<Link> link_;
  FramingDomain* domain_ = nullptr;
  // Of a link that is sealed, or whose large messages are.
  struct Sealing {
    ConnectionSeal seal;
    std::optional<SealedTransfers> transfers;  // none: large messages alone are sealed
  };
  std::unique_ptr<Sealing> sealing_;
  FramedRemoteAccess remote_;
  LargeMessages large_;
  absl::Status broken_;  // OK: not broken
  std::string close_reason_;
  uint64_t large_sent_ = 0;
  uint64_t large_received_ = 0;
};

}  // namespace weft
