// What the connections of one LinkDomain share above it: the pools for large messages, the regions
// that peers may change by atomics, the line of those who seal and open, and the account of
// receives that peers have been promised.
//
// Threads: one engine's. Lifetime: made after its LinkDomain and destroyed before it, when no
//   connection uses it any more.
// Invariants: promised <= the domain's receives_posted (+ receives_withheld, see there) whenever a
//   batch is sent: no peer ever holds a credit without a receive behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "transport/framing/atomic_regions.h"
#include "transport/framing/large_line.h"
#include "transport/framing/large_pool.h"
#include "transport/framing/region_account.h"
#include "transport/framing/sealed_regions.h"
#include "transport/link.h"

namespace weft {

struct FramingOptions {
  // Bounds of memory for large messages, for the whole engine and path; at least kMaxMessageBytes.
  // Lower: senders meet RESOURCE_EXHAUSTED, and arriving messages wait for each other, sooner.
  size_t large_send_bytes = kDefaultLargePoolBytes;
  size_t large_receive_bytes = kDefaultLargePoolBytes;
  uint64_t max_region_bytes = kDefaultRegionBytes;  // through RemoteAccess::Register()
  RegionCounters* region_counters = nullptr;        // outlive the domain
  // What is sealed, or opened and delivered, of large messages before others have their turn; >= 1.
  // Another one than this is for tests.
  size_t large_piece_bytes = kLargePieceBytes;
  // The path number of the engine's first domain; a multiple of kMaxPathNumbers.
  uint32_t first_path_number = 0;
  // Draws the keys of sealed regions, and outlives the domain. Null: the system does, so that
  // nobody can guess them.
  Random* region_keys = nullptr;
};

class FramingDomain {
 public:
  // `path_number`: RemoteAccess::path_number() of its connections that are not sealed; less than
  // kMaxPathNumbers / 2 above the engine's first.
  explicit FramingDomain(LinkDomain* links, const FramingOptions& options = {},
                         uint32_t path_number = 0)
      : links_(links),
        path_number_(path_number),
        send_pool_(nullptr, options.large_send_bytes),
        receive_pool_(links, options.large_receive_bytes),
        region_account_(options.max_region_bytes, options.region_counters),
        region_keys_(options.region_keys),
        large_piece_bytes_(options.large_piece_bytes) {}

  LinkDomain& links() { return *links_; }
  uint32_t path_number() const { return path_number_; }
  LargePool& send_pool() { return send_pool_; }
  LargePool& receive_pool() { return receive_pool_; }
  AtomicRegions& atomic_regions() { return atomic_regions_; }
  RegionAccount& region_account() { return region_account_; }
  SealedRegions& sealed_regions() { return sealed_regions_; }
  LargeLine& large_line() { return large_line_; }
  size_t large_piece_bytes() const { return large_piece_bytes_; }
  uint64_t NewRegionKey() {
    return region_keys_ == nullptr ? SecureRandom64() : region_keys_->Next64();
  }
  // Where the frames of one batch lie, once opened: as long as OnReceived() runs.
  MutableByteSpan opened_batch() {
    if (opened_batch_.empty()) opened_batch_.resize(links_->slot_bytes());
    return opened_batch_;
  }

  void Promise(uint32_t receives) { promised_ += receives; }
  // A promised receive was used, or its connection is gone.
  void Settle(uint32_t receives) {
    // Ours: CreditWindow has refused batches that were not promised
    WEFT_DCHECK(promised_ >= receives);
    promised_ -= receives;
  }
  uint64_t promised() const { return promised_; }
  void CheckInvariants() const {
    const LinkDomainStats& stats = links_->stats();
    // Ours: invariants, which tests ask for
    WEFT_CHECK(promised_ <= stats.receives_posted + stats.receives_withheld);
  }

 private:
  LinkDomain* const links_;
  const uint32_t path_number_;
  LargePool send_pool_;
  LargePool receive_pool_;
  AtomicRegions atomic_regions_;
  RegionAccount region_account_;
  Random* const region_keys_;
  SealedRegions sealed_regions_;
  LargeLine large_line_;
  const size_t large_piece_bytes_;
  std::vector<std::byte> opened_batch_;
  uint64_t promised_ = 0;  // receives: credits that peers hold, and their batches in flight
};

}  // namespace weft
