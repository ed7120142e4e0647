// The sending half of large messages: buffers that wait, registered, for the peer to read them.
//
// A buffer is used again when nothing can read it any more, and not when the peer says that it has:
// one that says so in the middle of its read would get the next message, which may be another
// peer's.
//
// Threads: one engine's. Lifetime: a member of its connection.
// Errors: a full ring or pool is nullptr from Reserve(); a peer's done that answers no offer is
//   false from OnDone().
// Invariants: acknowledged <= offered <= acknowledged + kLargeOutstanding; of the messages with one
//   place in the ring, at most the last has not been reclaimed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/framing/batch.h"
#include "transport/framing/framing_domain.h"
#include "transport/link.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// Large messages on their way, for each connection and direction. Enough that 64 KiB messages keep
// a 10 GB/s path busy over 100 us; bounds what a peer can make the receiver remember.
inline constexpr uint32_t kLargeOutstanding = 16;

class LargeSender {
 public:
  class Host {
   public:
    // As RemoteAccess::Reclaim().
    virtual bool ReclaimLarge(std::unique_ptr<Region> region, Operation* op) = 0;
    // There may be room again.
    virtual void OnLargeReclaimed() = 0;

   protected:
    ~Host() = default;
  };

  explicit LargeSender(Host* host);
  LargeSender(const LargeSender&) = delete;
  LargeSender& operator=(const LargeSender&) = delete;

  // `digests`: offers carry the digest of their message. REQUIRES: nothing offered or reserved.
  void Start(FramingDomain* domain, bool digests);

  // Memory for a message of up to `bytes`, page-aligned; nullptr: full(), or the pool is.
  // REQUIRES: started; no open reservation; bytes <= kMaxMessageBytes.
  std::byte* Reserve(size_t bytes);
  bool reserved() const { return reserved_ != nullptr; }
  const std::byte* reserved_data() const { return reserved_->memory.data(); }
  void Abandon();

  // Registers the first `bytes` bytes of the reservation and describes them. After an error the
  // message is lost: the connection must end.
  // REQUIRES: reserved(), bytes >= 1.
  absl::StatusOr<LargeOffer> Commit(size_t bytes);

  // The peer has read a message. False: not the oldest offered one.
  [[nodiscard]] bool OnDone(const LargeDone& done);

  // Forgets everything. REQUIRES: the link is gone: nobody can read any more.
  void Stop();

  // kLargeOutstanding are on their way, or not yet reclaimed.
  bool full() const {
    return outstanding() == kLargeOutstanding ||
           ring_[offered_ % kLargeOutstanding].buffer != nullptr;
  }
  uint64_t outstanding() const { return offered_ - acknowledged_; }

 private:
  struct Offered final : public Operation {
    void OnComplete(const absl::Status&) override { sender->OnReclaimed(*this); }

    LargeSender* sender = nullptr;
    LargeBuffer* buffer = nullptr;  // null: reclaimed
    std::unique_ptr<Region> region;
  };

  void OnReclaimed(Offered& offered);
  void Free(Offered& offered);

  Host* const host_;
  FramingDomain* domain_ = nullptr;
  bool digests_ = false;
  LargeBuffer* reserved_ = nullptr;
  uint64_t offered_ = 0;
  uint64_t acknowledged_ = 0;
  std::array<Offered, kLargeOutstanding> ring_;  // [id % kLargeOutstanding]
};

}  // namespace weft
