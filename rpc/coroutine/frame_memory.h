// Memory for the frame of a coroutine where the same one comes again and again: each call at a
// server keeps one, so that the usual handler's frame allocates nothing. It is a block, which a
// host may give (weft/memory.h). What else is a frame, or too large, comes from the heap.
//
// A frame lies in it if one of the coroutine's parameters has one, by an overload of
// FrameMemoryOf(): a ServerContext.
//
// Threads: Take() and Give() any; the memory belongs to whoever has taken it.
// Lifetime: outlives the frame.
// Invariants: one frame at most lies in it.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <new>

#include "core/block_memory.h"

namespace weft {

class FrameMemory {
 public:
  // Larger frames come from the heap: the memory stays with a call that is spare, as its messages
  // do (16 KiB each). In bytes.
  static constexpr size_t kMostBytes = 16 << 10;

  // Null: it is taken, or this is too much.
  void* Take(size_t bytes) {
    if (bytes > kMostBytes || taken_.exchange(true, std::memory_order_acquire)) return nullptr;
    if (bytes > memory_.size()) {
      memory_ = Block::MustTake(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__, MemoryKind::kTables);
    }
    return memory_.data();
  }
  void Give() { taken_.store(false, std::memory_order_release); }

 private:
  Block memory_;
  std::atomic<bool> taken_{false};
};

namespace internal {

template <class T>
concept HasFrameMemory = requires(T& of) {
  { FrameMemoryOf(of) } -> std::same_as<FrameMemory&>;
};

// The first parameter's that has one; null: none has.
inline FrameMemory* FindFrameMemory() { return nullptr; }
template <class First, class... Rest>
FrameMemory* FindFrameMemory(First& first, Rest&... rest) {
  if constexpr (HasFrameMemory<First>) {
    return &FrameMemoryOf(first);
  } else {
    return FindFrameMemory(rest...);
  }
}

// Before a frame stands whose memory it is, in as many bytes as keep the frame aligned.
inline constexpr size_t kFrameHeaderBytes = __STDCPP_DEFAULT_NEW_ALIGNMENT__;
static_assert(kFrameHeaderBytes >= sizeof(FrameMemory*));

// `memory` may be null.
inline void* NewFrame(size_t bytes, FrameMemory* memory) {
  const size_t all = kFrameHeaderBytes + bytes;
  void* block = memory != nullptr ? memory->Take(all) : nullptr;
  if (block == nullptr) {
    memory = nullptr;
    block = ::operator new(all);
  }
  ::new (block) FrameMemory*(memory);
  return static_cast<std::byte*>(block) + kFrameHeaderBytes;
}

inline void DeleteFrame(void* frame) {
  void* const block = static_cast<std::byte*>(frame) - kFrameHeaderBytes;
  FrameMemory* const memory = *static_cast<FrameMemory**>(block);
  if (memory != nullptr) return memory->Give();
  ::operator delete(block);
}

}  // namespace internal
}  // namespace weft
