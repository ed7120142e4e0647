// Large messages of one connection, both ways: buffers and offers on this side, reads and
// deliveries of what the peer offers, and the answers to both.
//
// A message above BatchSender::eager_bytes() is written to a buffer of the domain's send pool, and
// offered by a frame; the peer reads it, and answers done. large_sender.h and large_receiver.h are
// the two halves. Handlers, and on sealed connections both halves, have work to do for each byte:
// for more than a piece of it a connection stands in the domain's line (large_line.h), one place
// for both halves.
//
// Threads: one engine's. Lifetime: a member of its connection; host, sender and remote access
//   outlive it.
// Errors: a refusal is null; a peer that breaks the rules is false.
// Invariants: kLargeOutstanding messages each way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "transport/framing/batch.h"
#include "transport/framing/batch_sender.h"
#include "transport/framing/framed_remote_access.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/large_pool.h"
#include "transport/framing/large_receiver.h"
#include "transport/framing/large_sender.h"
#include "transport/link.h"

namespace weft {

class LargeMessages final : private LargeSender::Host,
                            private LargeReceiver::Host,
                            private LargeWatcher,
                            private LargeLine::Member {
 public:
  class Host {
   public:
    // Valid until the call returns. `offered_ns`: when its offer came.
    virtual void OnLargeMessage(ByteSpan message, uint64_t offered_ns) = 0;
    // There may be room again for who was refused.
    virtual void OnRoom() = 0;
    // AdvanceReads() soon, from Transport::Poll().
    virtual void AdvanceReadsSoon() = 0;
    // OnLineTurn() soon, from Transport::Poll().
    virtual void LineTurnSoon() = 0;
    // Another number in each turn.
    virtual uint64_t Turn() const = 0;
    // A message that was promised, by either side, cannot be moved.
    virtual void OnLargeFailed(const absl::Status& why) = 0;

   protected:
    ~Host() = default;
  };

  LargeMessages(Host* host, BatchSender* sender, FramedRemoteAccess* remote,
                const LargePatience& patience = {})
      : host_(host),
        batches_(*sender),
        remote_(*remote),
        sender_(this, patience),
        receiver_(this, patience) {}
  LargeMessages(const LargeMessages&) = delete;
  LargeMessages& operator=(const LargeMessages&) = delete;

  // `seal`: of what is sent by it; null: without. It outlives Stop().
  // `client`: PathInfo::client of the peer.
  void Start(FramingDomain* domain, Link* link, uint64_t client, ConnectionSeal* seal = nullptr);
  // Nothing is sealed, opened, read or delivered any more. Before the link is destroyed.
  void Cease();
  // Gives all buffers back. REQUIRES: Cease(), and the link is gone.
  void Stop();

  // --- sending ----------------------------------------------------------------------------------

  // Memory for a message of up to `bytes`, and the place of its offer; null: no room now.
  // REQUIRES: the sender has no reservation; bytes <= kMaxMessageBytes.
  std::byte* Reserve(size_t bytes);
  bool reserved() const { return sender_.reserved(); }
  // False: it cannot be registered, and the message is lost. `*is_large`: it was offered; what came
  // out no longer than an offer is an ordinary message. REQUIRES: reserved().
  absl::Status Commit(size_t bytes, bool* is_large);
  void Abandon();

  // --- of the peer ------------------------------------------------------------------------------

  [[nodiscard]] bool OnOffer(const Frame& frame);
  [[nodiscard]] bool OnDone(const Frame& frame);

  // --- of the turn ------------------------------------------------------------------------------

  // Answers what was delivered, and offers what is sealed, as far as there is room.
  void AppendDue();
  bool has_due() const { return receiver_.has_done() || sender_.has_offer(); }
  // Seals, or opens and delivers, a piece, if it is this one's turn.
  void OnLineTurn();
  // Nothing is sealed, opened or delivered any more: the sender is shut.
  void LeaveLine() {
    if (domain_ != nullptr) domain_->large_line().Leave(this);
  }
  // Of both directions: offered, and not known to be delivered.
  uint32_t under_way() const {
    return static_cast<uint32_t>(sender_.outstanding() + receiver_.outstanding());
  }
  void AdvanceReads() { receiver_.Advance(); }
  // Inside Host::OnLargeMessage(); as LargeReceiver::KeepDelivered().
  std::shared_ptr<const void> KeepDelivered() { return receiver_.KeepDelivered(); }
  // The link's domain has room for operations again.
  void OnSlotsFree();

  void CheckInvariants() const { receiver_.CheckInvariants(); }

 private:
  // LargeSender::Host, LargeWatcher
  bool ReclaimLarge(std::unique_ptr<Region> region, Operation* op) override;
  void OnLargeReclaimed() override { host_->OnRoom(); }
  void OnOfferOverdue(const absl::Status& why) override { host_->OnLargeFailed(why); }
  void OnOfferFailed(const absl::Status& why) override { host_->OnLargeFailed(why); }
  void OnReleased() override { host_->OnRoom(); }
  // LargeReceiver::Host
  void DeliverLarge(ByteSpan message, uint64_t offered_ns) override {
    host_->OnLargeMessage(message, offered_ns);
  }
  void OnLargeDelivered() override;
  void OnReadRefused() override { reads_refused_ = true; }
  void OnReadDone() override { host_->AdvanceReadsSoon(); }
  void OnReadFailed(const absl::Status& why) override;
  bool TakesTurn() override;
  // LargeLine::Member
  void OnFirst() override { host_->LineTurnSoon(); }
  void FlushDue();
  size_t offer_bytes() const { return seals_ ? LargeOffer::kSealedBytes : LargeOffer::kBytes; }

  Host* const host_;
  BatchSender& batches_;
  FramedRemoteAccess& remote_;
  FramingDomain* domain_ = nullptr;
  uint64_t client_ = 0;
  bool seals_ = false;
  bool reads_refused_ = false;  // for want of room in the domain
  bool opened_last_ = false;    // in its last turn, which is the other half's next time
  LargeSender sender_;
  LargeReceiver receiver_;
};

}  // namespace weft
