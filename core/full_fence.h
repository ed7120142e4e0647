// Orders a store before a later load of another word, against the same two steps mirrored on
// another thread: each stores its own word, then looks at the other's, and one of them at least
// sees the other's store (Dekker's argument).
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

inline void FullFence() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not model fences; a read-modify-write is one on every machine we run on.
  static std::atomic<uint32_t> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace weft
