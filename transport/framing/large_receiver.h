// The receiving half of large messages: offers from the peer, read into buffers of the pool,
// delivered in the order of the offers.
//
//   offered -> (a buffer from the pool) -> reading -> read -> opened, if it is sealed -> delivered
//   -> done is sent
//
// A sealed message is opened in its place, a piece at a time; another one cannot be divided, and is
// delivered whole. What has been read waits for this connection's turn in the domain's line
// (large_line.h), for reads that began together end together, and their handlers would all run in
// one turn.
//
// Several are read at a time, so many as transfer_table.h says. Each stage is a counter into one
// ring; a message is in the stage whose counter it has not passed.
//
// Threads: one engine's. Lifetime: a member of its connection, which is the host.
// Errors: an offer against the rules is false from OnOffer(); a read that fails, or that the peer
//   does not answer, ends the connection (Host::OnReadFailed), because a message that was promised
//   cannot be delivered.
// Invariants: done <= delivered <= reading <= offered <= done + kLargeOutstanding. Bytes of the
//   messages from delivered to reading <= TransferTable::fetched_bytes, or it is one message: so
//   much of the pool one connection can hold, and with a claim that waits, no more. Its client
//   leaves others room (large_pool.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/timer_wheel.h"
#include "transport/framing/batch.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/large_sender.h"
#include "transport/framing/seal.h"
#include "transport/link.h"
#include "transport/transport.h"

namespace weft {

class LargeReceiver : private LargeClaim, private Timer {
 public:
  class Host {
   public:
    // `message` is valid until the call returns. Stop() is not allowed inside. `offered_ns`: when
    // its offer came.
    virtual void DeliverLarge(ByteSpan message, uint64_t offered_ns) = 0;
    // NextDone() has something.
    virtual void OnLargeDelivered() = 0;
    // The domain has no room for a read now: call Advance() when it has.
    virtual void OnReadRefused() = 0;
    // A read was done at once: call Advance(), which delivers it, from Transport::Poll().
    virtual void OnReadDone() = 0;
    virtual void OnReadFailed(const absl::Status& why) = 0;
    // Whether a piece may be delivered now. False: Deliver() is called in this connection's turn.
    virtual bool TakesTurn() = 0;

   protected:
    ~Host() = default;
  };

  LargeReceiver(Host* host, const LargePatience& patience);
  LargeReceiver(const LargeReceiver&) = delete;
  LargeReceiver& operator=(const LargeReceiver&) = delete;

  // `client`: PathInfo::client of the peer. `seal`: of messages; null: they are not sealed. It
  // outlives Stop(). REQUIRES: stopped, or new.
  void Start(FramingDomain* domain, Link* link, uint64_t client, Seal* seal = nullptr);

  // `tag`: of a sealed message, else empty. False: out of order, too many, too large, empty, or not
  // in memory that a provider reads: the peer broke the protocol.
  [[nodiscard]] bool OnOffer(const LargeOffer& offer, ByteSpan tag = {});

  // Inside Host::DeliverLarge(): the message stays where it is until the last copy of this is gone
  // (LargePool::Lend()). Null: it cannot, or no message is being delivered.
  std::shared_ptr<const void> KeepDelivered();

  // Delivers a piece of what has been read, if it may now, claims buffers and posts reads, as far
  // as it goes.
  void Advance();
  // A piece, in this connection's turn, and the rest of Advance().
  void DeliverInTurn();
  // A message has been read, and not delivered, or only opened in part.
  bool has_read() const {
    return active_ && delivered_ != reading_ && ring_[delivered_ % kLargeOutstanding].read;
  }

  // The next message to acknowledge; false: none. SentDone() counts it as sent.
  [[nodiscard]] bool NextDone(LargeDone* done) const;
  void SentDone() { ++done_; }
  bool has_done() const { return done_ != delivered_; }

  // From now on completions are ignored and nothing is read or delivered. Before the link is
  // destroyed.
  void Cease() { active_ = false; }
  // Gives all buffers back. REQUIRES: Cease(), and the link is gone.
  void Stop();

  uint64_t outstanding() const { return offered_ - done_; }
  void CheckInvariants() const;

 private:
  class Incoming final : public Operation {
   public:
    void OnComplete(const absl::Status& status) override;

    LargeReceiver* receiver = nullptr;
    LargeOffer offer;
    std::array<std::byte, Seal::kTagBytes> tag;
    uint64_t offered_ns = 0;
    LargeBuffer* buffer = nullptr;
    bool read = false;
  };

  // LargeClaim: the buffer is for the message at reading_.
  void OnBuffer(LargeBuffer* buffer) override;
  bool MayRead(uint64_t bytes) const;
  void OnTimer() override;
  void PostReads();
  void PostPossibleReads();
  bool PostRead(Incoming& incoming);
  void Fail(const absl::Status& why);
  void OnRead(Incoming& incoming, const absl::Status& status);
  bool OpenSome(Incoming& incoming, size_t* most_bytes);
  void Deliver();
  void ReturnBuffer(Incoming& incoming);
  Incoming& At(uint64_t id) { return ring_[id % kLargeOutstanding]; }

  Host* const host_;
  const LargePatience patience_;
  FramingDomain* domain_ = nullptr;
  Link* link_ = nullptr;
  Seal* seal_ = nullptr;
  uint64_t client_ = 0;
  bool active_ = false;
  bool wipes_ = false;         // a read that has succeeded may not have written all of its buffer
  uint64_t opened_bytes_ = 0;  // of the message at delivered_, the first ones
  uint64_t most_reading_bytes_ = 0;
  bool reads_at_once_ = false;  // a read is over when it is posted: it is a copy of this side's
  uint64_t reading_bytes_ = 0;  // of the messages from delivered_ to reading_
  uint64_t offered_ = 0;
  uint64_t reading_ = 0;
  uint64_t delivered_ = 0;
  uint64_t done_ = 0;
  uint64_t watched_ = 0;            // while armed: the message that is to be read in time
  Incoming* delivering_ = nullptr;  // inside Host::DeliverLarge()
  std::array<Incoming, kLargeOutstanding> ring_;  // [id % kLargeOutstanding]
};

}  // namespace weft
