// The sending half of large messages: buffers that wait, registered, for the peer to read them.
//
// Threads: one engine's. Lifetime: a member of its connection.
// Errors: a full ring or pool is nullptr from Reserve(); a peer's done that answers no offer is
//   false from OnDone().
// Invariants: acknowledged <= offered <= acknowledged + kLargeOutstanding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/framing/batch.h"
#include "transport/framing/framing_domain.h"
#include "transport/link.h"
#include "transport/region.h"

namespace weft {

// Large messages on their way, for each connection and direction. Enough that 64 KiB messages keep
// a 10 GB/s path busy over 100 us; bounds what a peer can make the receiver remember.
inline constexpr uint32_t kLargeOutstanding = 16;

class LargeSender {
 public:
  LargeSender() = default;
  LargeSender(const LargeSender&) = delete;
  LargeSender& operator=(const LargeSender&) = delete;

  // REQUIRES: nothing offered or reserved.
  void Start(FramingDomain* domain);

  // Memory for a message of up to `bytes`, page-aligned; nullptr: kLargeOutstanding are on their
  // way, or the pool is full.
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

  bool full() const { return offered_ - acknowledged_ == kLargeOutstanding; }
  uint64_t outstanding() const { return offered_ - acknowledged_; }

 private:
  struct Offered {
    LargeBuffer* buffer = nullptr;
    std::unique_ptr<Region> region;
  };

  void Free(Offered& offered);

  FramingDomain* domain_ = nullptr;
  LargeBuffer* reserved_ = nullptr;
  uint64_t offered_ = 0;
  uint64_t acknowledged_ = 0;
  std::array<Offered, kLargeOutstanding> ring_;  // [id % kLargeOutstanding]
};

}  // namespace weft
