// Prefetching memory before it is touched, so that several cache misses pass at once instead of one
// after the other. For what was not used lately: where the lines are in the cache it only costs
// instructions.
//
// Threads: any. Errors: none, whatever the address: nothing is read.
#pragma once

#include <cstddef>

#include "core/cache_line.h"
#include "core/inline.h"

namespace weft {

// The lines of [at, at + bytes). (Always in line: GCC takes a function that only prefetches for one
// that does nothing, and drops its calls.)
WEFT_INLINE void PrefetchLines(const void* at, std::size_t bytes) {
  const auto* const begin = static_cast<const char*>(at);
  for (std::size_t line = 0; line < bytes; line += kCacheLineBytes) {
    __builtin_prefetch(begin + line);
  }
}

// The line at `at`, which is about to be written: another processor's copy goes now.
inline void PrefetchForWrite(const void* at) {
#if defined(__x86_64__)
  // Compilers emit it only where told that the processor has it. Every one of 64 bits takes it;
  // those that do not have it do nothing.
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(at)));
#else
  __builtin_prefetch(at, /*rw=*/1);
#endif
}

}  // namespace weft
