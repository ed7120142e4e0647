// Walks through a region, transfer by transfer, so that what is moved is not always what is in a
// cache near the core.
//
// Threads: one.
#pragma once

#include <cstddef>

#include "bench/perf/cell/cell.h"

namespace weft::bench {

class Places {
 public:
  explicit Places(size_t region_bytes = kRegionBytes) : region_bytes_(region_bytes) {}

  // The offset of the next `bytes`. REQUIRES: bytes <= region_bytes.
  size_t Next(size_t bytes) {
    if (next_ + bytes > region_bytes_) next_ = 0;
    const size_t place = next_;
    next_ += bytes;
    return place;
  }

 private:
  size_t region_bytes_;
  size_t next_ = 0;
};

}  // namespace weft::bench
