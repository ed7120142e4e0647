// Marks memory that nobody may touch now, for AddressSanitizer; does nothing in other builds.
//
// For pools: a free cell is poisoned, so that a late user of it is caught.
//
// Threads:   any; the memory's owner calls.
// Lifetime:  REQUIRES: memory is unpoisoned before it is given back to the system's allocator.
#pragma once

#include "core/bytes.h"

#if defined(__SANITIZE_ADDRESS__)
#define WEFT_INTERNAL_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WEFT_INTERNAL_POISONS 1
#endif
#endif

#ifdef WEFT_INTERNAL_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace weft {

inline void Poison([[maybe_unused]] MutableByteSpan memory) {
#ifdef WEFT_INTERNAL_POISONS
  ASAN_POISON_MEMORY_REGION(memory.data(), memory.size());
#endif
}

inline void Unpoison([[maybe_unused]] MutableByteSpan memory) {
#ifdef WEFT_INTERNAL_POISONS
  ASAN_UNPOISON_MEMORY_REGION(memory.data(), memory.size());
#endif
}

}  // namespace weft
