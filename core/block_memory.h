// Memory in blocks: from a host's hooks (core/memory_hooks.h) or from the system, and counted.
//
// Not for the way of a call: each block is counted by atomics that all threads share.
//
// Threads: any. Errors: as said at each function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "core/memory_hooks.h"

namespace weft {

// Whether blocks come from a host's hooks: from the first question on, the answer stays.
bool HasMemoryHooks();

// Null: there is no memory. With hooks, zeros of kSlots and kBuffers; without, whatever was there.
void* TakeBlock(size_t bytes, size_t alignment, MemoryKind kind);
// REQUIRES: `memory` is what TakeBlock() gave for these.
void GiveBlock(void* memory, size_t bytes, size_t alignment, MemoryKind kind);

// The same for whole pages of zeros, from mmap(2) where there are no hooks. Null: errno says why.
void* TakePages(size_t bytes, MemoryKind kind);
void GivePages(void* memory, size_t bytes, MemoryKind kind);

// Counts memory that was mapped, or unmapped, otherwise.
void CountTaken(MemoryKind kind, size_t bytes);
void CountGiven(MemoryKind kind, size_t bytes);

// For `count` elements, which are not constructed. Where there is no memory the process ends, as
// with operator new.
template <class T>
T* TakeTable(size_t count);
template <class T>
void GiveTable(T* table, size_t count);

namespace internal {
void* TakeTableBytes(size_t count, size_t element_bytes, size_t alignment);
}  // namespace internal

template <class T>
T* TakeTable(size_t count) {
  return static_cast<T*>(internal::TakeTableBytes(count, sizeof(T), alignof(T)));
}
template <class T>
void GiveTable(T* table, size_t count) {
  GiveBlock(table, count * sizeof(T), alignof(T), MemoryKind::kTables);
}

// A block of bytes for one owner, of less than 4 GiB: two words.
class Block {
 public:
  Block() = default;
  // Empty: there is no memory.
  static Block Take(size_t bytes, size_t alignment, MemoryKind kind);
  // Where there is no memory the process ends, as with operator new.
  static Block MustTake(size_t bytes, size_t alignment, MemoryKind kind);
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept;
  ~Block() { Reset(); }

  bool empty() const { return data_ == nullptr; }
  std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }

 private:
  void Reset();

  std::byte* data_ = nullptr;
  uint32_t bytes_ = 0;
  uint8_t alignment_bits_ = 0;  // its power of two
  MemoryKind kind_ = MemoryKind::kObjects;
};

}  // namespace weft
