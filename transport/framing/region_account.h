// The memory that an application has registered with one domain: bounded and counted.
//
// Registered memory cannot be paged out where RDMA is; a program that registers without end takes
// it from all others, and a bound of ours is told in better words than the system's.
//
// Threads: one engine's; the counters are read by any. Lifetime: outlives the regions.
// Invariants: open_bytes <= limit.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/counters.h"
#include "core/strings.h"
#include "transport/region.h"

namespace weft {

// Counters of an engine, over all its domains.
struct RegionCounters {
  Counter registrations;     // memory.registrations: ever made for applications
  Counter registered_bytes;  // memory.registered_bytes: now
};

class RegionAccount final : private RegionWatcher {
 public:
  // `counters` may be null; outlives this.
  RegionAccount(uint64_t limit_bytes, RegionCounters* counters)
      : limit_bytes_(limit_bytes), counters_(counters) {}

  absl::Status Check(uint64_t bytes) const {
    if (bytes <= limit_bytes_ && open_bytes_ <= limit_bytes_ - bytes) return absl::OkStatus();
    return absl::ResourceExhaustedError(StrCat(
        "registering ", bytes, " bytes more than the ", open_bytes_,
        " that are registered would exceed NetworkOptions::max_region_bytes, ", limit_bytes_));
  }
  // Counts it until it is destroyed. REQUIRES: Check() of its size.
  void Charge(Region* region) {
    Watch(region);
    Add(region->memory().size());
    if (counters_ != nullptr) counters_->registrations.Increment();
  }

 private:
  void Add(uint64_t bytes) {
    open_bytes_ += bytes;
    if (counters_ != nullptr) counters_->registered_bytes.Add(bytes);
  }
  void OnRegionGone(size_t bytes) override {
    open_bytes_ -= bytes;
    if (counters_ != nullptr) counters_->registered_bytes.Sub(bytes);
  }

  const uint64_t limit_bytes_;
  RegionCounters* const counters_;
  uint64_t open_bytes_ = 0;
};

}  // namespace weft
