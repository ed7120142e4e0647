// The sending half of large messages: buffers that wait, registered, for the peer to read them.
//
// A buffer is used again when nothing can read it any more, and not when the peer says that it has:
// one that says so in the middle of its read would get the next message, which may be another
// peer's.
//
// On a sealed connection a message is sealed in its place, a piece at a time (large_line.h), and
// only then registered: the card can reach ciphertext alone. Then it is offered, by the first batch
// that has room.
//
//   a message   until                              sealed connections
//   reserved    Commit(), CommitToSeal(), Abandon()
//   committed   it is ready: at once               SealNext() has done all of it
//   ready       its offer is in a batch: at once   SentOffer()
//   offered     the peer's done
//   answered    nothing can read its buffer any more
//
// Threads: one engine's. Lifetime: a member of its connection.
// Errors: a full ring or pool is nullptr from Reserve(); a peer's done that answers no offer is
//   false from OnDone(); one that takes nothing ends the connection (Host::OnOfferOverdue).
// Invariants: answered <= offered <= ready <= committed <= answered + kLargeOutstanding; of the
//   messages with one place in the ring, at most the last has not been reclaimed. One connection
//   has a quarter of the pool at most, or one message; its client leaves others room, too
//   (large_pool.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/timer_wheel.h"
#include "transport/framing/batch.h"
#include "transport/framing/framing_domain.h"
#include "transport/framing/seal.h"
#include "transport/link.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// Large messages on their way, for each connection and direction. Enough that 64 KiB messages keep
// a 10 GB/s path busy over 100 us; bounds what a peer can make the receiver remember.
inline constexpr uint32_t kLargeOutstanding = 16;

// How long a peer may take with large messages: LinkOptions::transfer_timeout_ns.
struct LargePatience {
  // Of what was offered, more: who takes it may have to wait for a buffer that others hold, for as
  // long as this side lets them hold its own. The largest message has 4 times timeout_ns.
  static constexpr uint64_t kTimesForOffers = 6;

  Clock* clock = nullptr;  // null: for ever
  TimerWheel* timers = nullptr;
  uint64_t timeout_ns = 0;
};

class LargeSender : private Timer {
 public:
  class Host {
   public:
    // The peer has not taken the oldest message in time.
    virtual void OnOfferOverdue(const absl::Status& why) = 0;
    // As RemoteAccess::Reclaim().
    virtual bool ReclaimLarge(std::unique_ptr<Region> region, Operation* op) = 0;
    // There may be room again.
    virtual void OnLargeReclaimed() = 0;
    // A message that was committed cannot be offered: the connection must end.
    virtual void OnOfferFailed(const absl::Status& why) = 0;

   protected:
    ~Host() = default;
  };

  LargeSender(Host* host, const LargePatience& patience);
  LargeSender(const LargeSender&) = delete;
  LargeSender& operator=(const LargeSender&) = delete;

  // `client`: PathInfo::client of the peer. `seal`: of messages; null: they are not sealed. It
  // outlives Stop(). REQUIRES: nothing offered or reserved.
  void Start(FramingDomain* domain, uint64_t client, Seal* seal = nullptr);

  // Memory for a message of up to `bytes`, page-aligned; nullptr: full(), or the pool is, or the
  // part of it that this connection may have, or its client. REQUIRES: started; no open
  // reservation; bytes <= kMaxMessageBytes.
  std::byte* Reserve(size_t bytes);
  bool reserved() const { return reserved_ != nullptr; }
  const std::byte* reserved_data() const { return reserved_->memory.data(); }
  void Abandon();

  // Registers the first `bytes` bytes of the reservation and describes them. After an error the
  // message is lost: the connection must end, and Stop() frees the reservation.
  // REQUIRES: reserved(), bytes >= 1.
  absl::StatusOr<LargeOffer> Commit(size_t bytes);

  // The same of a sealed connection, whose messages SealNext() describes later. What is written to
  // them until the caller returns to the engine is sealed. REQUIRES: reserved(), bytes >= 1.
  void CommitToSeal(size_t bytes);
  // Seals `most_bytes` at most of what is committed, in order. A message may be left half done.
  // REQUIRES: called by the engine, so that no caller is about to write.
  void SealNext(size_t most_bytes);
  bool has_unsealed() const { return ready_ != committed_; }

  // The next message that the peer is to be told of, and its tag; false: none. SentOffer() counts
  // it as told.
  [[nodiscard]] bool NextOffer(LargeOffer* offer, ByteSpan* tag) const;
  void SentOffer() { ++offered_; }
  bool has_offer() const { return offered_ != ready_; }

  // The peer has read a message. False: not the oldest offered one.
  [[nodiscard]] bool OnDone(const LargeDone& done);

  // Forgets everything. REQUIRES: the link is gone: nobody can read any more.
  void Stop();

  // kLargeOutstanding are on their way, or not yet reclaimed.
  bool full() const {
    return outstanding() == kLargeOutstanding ||
           ring_[committed_ % kLargeOutstanding].buffer != nullptr;
  }
  uint64_t outstanding() const { return committed_ - answered_; }

 private:
  struct Offered final : public Operation {
    void OnComplete(const absl::Status&) override { sender->OnReclaimed(*this); }

    LargeSender* sender = nullptr;
    LargeBuffer* buffer = nullptr;  // null: reclaimed
    std::unique_ptr<Region> region;
    // Of a sealed connection:
    size_t bytes = 0;
    size_t sealed_bytes = 0;  // the first ones
    std::array<std::byte, RecordCipher::kTagBytes> tag;
  };

  void OnTimer() override;
  // The peer has to take the oldest one that is ready from now on.
  void Watch();
  void SealSome(Offered& offered, size_t* most_bytes);
  absl::StatusOr<std::unique_ptr<Region>> Register(const LargeBuffer& buffer, size_t bytes);
  // The reservation has the next place in the ring.
  Offered& TakeReserved();
  void OnReclaimed(Offered& offered);
  void Free(Offered& offered);

  Host* const host_;
  const LargePatience patience_;
  FramingDomain* domain_ = nullptr;
  Seal* seal_ = nullptr;
  LargeBuffer* reserved_ = nullptr;
  uint64_t client_ = 0;
  uint64_t held_bytes_ = 0;  // of buffers in the ring
  uint64_t committed_ = 0;
  uint64_t ready_ = 0;
  uint64_t offered_ = 0;
  uint64_t answered_ = 0;
  std::array<Offered, kLargeOutstanding> ring_;  // [id % kLargeOutstanding]
};

}  // namespace weft
