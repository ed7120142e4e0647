// The processor time that this process has used, for services that tell it to their clients.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <ctime>

#include "core/clock.h"

// Of all its threads, in nanoseconds.
inline uint64_t ProcessCpuNs() {
  timespec used = {};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used) != 0) return 0;  // it can't fail on Linux
  return static_cast<uint64_t>(used.tv_sec) * weft::kNsPerSec + static_cast<uint64_t>(used.tv_nsec);
}
