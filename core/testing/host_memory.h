// A host's allocator, for tests of the hooks: it knows what it has given, of which kind, and may
// have no memory. It aborts where a block does not come back as it was given.
//
// Threads: any. Lifetime: one for the process, for ever.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "core/function.h"
#include "core/memory_hooks.h"

namespace weft::test {

class HostMemory {
 public:
  static HostMemory& Get() {
    static auto* const memory = new HostMemory;
    return *memory;
  }

  MemoryHooks hooks() {
    return {
        .take =
            [](size_t bytes, size_t alignment, MemoryKind kind, void* context) {
              return static_cast<HostMemory*>(context)->Take(bytes, alignment, kind);
            },
        .give =
            [](void* memory, size_t bytes, size_t alignment, MemoryKind kind, void* context) {
              static_cast<HostMemory*>(context)->Give(memory, bytes, alignment, kind);
            },
        .context = this,
    };
  }

  // From now on there is none of these kinds, each a bit.
  void Refuse(unsigned kinds) {
    const std::lock_guard<std::mutex> lock(mutex_);
    refused_ = kinds;
  }

  // Runs in each hook, on its thread and with no lock. Null: nothing. While no hook runs.
  void OnHook(Function<void()> look) { look_ = std::move(look); }

  // That are out.
  uint64_t bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [memory, block] : blocks_) sum += block.bytes;
    return sum;
  }
  uint64_t bytes_of(MemoryKind kind) {
    const std::lock_guard<std::mutex> lock(mutex_);
    uint64_t sum = 0;
    for (const auto& [memory, block] : blocks_) sum += block.kind == kind ? block.bytes : 0;
    return sum;
  }
  // Whether it has given this, or a block that this is in.
  bool Has(const void* memory) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto next = blocks_.upper_bound(static_cast<const std::byte*>(memory));
    if (next == blocks_.begin()) return false;
    --next;
    return static_cast<const std::byte*>(memory) < next->first + next->second.bytes;
  }

 private:
  struct Block {
    size_t bytes;
    size_t alignment;
    MemoryKind kind;
  };

  void* Take(size_t bytes, size_t alignment, MemoryKind kind) {
    WEFT_CHECK(kind != MemoryKind::kShared);
    WEFT_CHECK(bytes > 0 && (alignment & (alignment - 1)) == 0 && alignment <= (size_t{2} << 20));
    if (look_) look_();
    const std::lock_guard<std::mutex> lock(mutex_);
    if ((refused_ >> static_cast<unsigned>(kind) & 1) != 0) return nullptr;
    void* memory = nullptr;
    WEFT_CHECK(posix_memalign(&memory, alignment < 8 ? 8 : alignment, bytes) == 0);
    if (kind == MemoryKind::kSlots || kind == MemoryKind::kBuffers) std::memset(memory, 0, bytes);
    blocks_[static_cast<const std::byte*>(memory)] = {bytes, alignment, kind};
    return memory;
  }
  void Give(void* memory, size_t bytes, size_t alignment, MemoryKind kind) {
    if (look_) look_();
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto block = blocks_.find(static_cast<const std::byte*>(memory));
    WEFT_CHECK(block != blocks_.end());
    WEFT_CHECK(block->second.bytes == bytes && block->second.alignment == alignment);
    WEFT_CHECK(block->second.kind == kind);
    blocks_.erase(block);
    std::free(memory);
  }

  Function<void()> look_;
  std::mutex mutex_;
  unsigned refused_ = 0;                      // guarded by mutex_
  std::map<const std::byte*, Block> blocks_;  // guarded by mutex_
};

}  // namespace weft::test
