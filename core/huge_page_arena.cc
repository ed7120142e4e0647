#include "core/huge_page_arena.h"

#include <sys/mman.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <new>

#include "core/block_memory.h"
#include "core/cache_line.h"
#include "core/check.h"
#include "core/fork_guard.h"
#include "core/process_wide.h"

// Kernels since 6.1 have it, headers later.
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

// Sanitizers know of malloc's memory what they cannot know of this.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define WEFT_INTERNAL_PLAIN_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define WEFT_INTERNAL_PLAIN_MEMORY 1
#endif
#endif

namespace weft {
namespace {

#ifdef WEFT_INTERNAL_PLAIN_MEMORY
constexpr bool kPlain = true;
#else
constexpr bool kPlain = false;
#endif

constexpr size_t kSizes = HugePageArena::kMaxObjectBytes / kCacheLineBytes + 1;

size_t LinesOf(size_t bytes) { return (bytes + kCacheLineBytes - 1) / kCacheLineBytes; }

// What was given back, while nobody has it.
struct Free {
  Free* next;
};

// The beginning of a chunk, which is aligned to its size.
struct Chunk {
  Chunk* next = nullptr;
  Chunk* previous = nullptr;
  size_t used_bytes = 0;                // from the beginning; those behind were never given out
  size_t live = 0;                      // objects
  bool huge = false;                    // asked for
  std::array<Free*, kSizes> free = {};  // by lines

  std::byte* begin() { return reinterpret_cast<std::byte*>(this); }
};

constexpr size_t kFirstOffset =
    (sizeof(Chunk) + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
static_assert(kFirstOffset + HugePageArena::kMaxObjectBytes <= HugePageArena::kChunkBytes / 8);

struct Chunks {
  // A host's hooks, which may wait for a lock of the host's, are called without it.
  ProcessMutex mutex;
  Chunk* first = nullptr;  // the newest; guarded by mutex, as all below
  size_t count = 0;

  void* Take(size_t lines);
  void Give(void* memory, size_t lines);

 private:
  // All of these with mutex.
  void* TakeFromAny(size_t lines);
  Chunk* Add(std::byte* memory);
  void Remove(Chunk* chunk);
  void* TakeFrom(Chunk* chunk, size_t lines);
};

// Objects may outlive whatever is destroyed.
Chunks& All() {
  static constinit ProcessWide<Chunks> chunks;
  return chunks.Get();
}

// As mmap() aligns to pages, room for one chunk is cut out of that for two.
std::byte* MapChunk() {
  constexpr size_t kBytes = HugePageArena::kChunkBytes;
  if (HasMemoryHooks()) {
    void* const memory = TakeBlock(kBytes, kBytes, MemoryKind::kObjects);
    WEFT_CHECK(memory != nullptr);  // User: the host's hook has none, as for operator new
    return static_cast<std::byte*>(memory);
  }
  void* const mapped = mmap(nullptr, 2 * kBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, /*fd=*/-1, /*offset=*/0);
  WEFT_CHECK(mapped != MAP_FAILED);  // System: out of memory, as for operator new
  auto* const begin = static_cast<std::byte*>(mapped);
  const size_t before = -reinterpret_cast<uintptr_t>(begin) % kBytes;
  if (before > 0) munmap(begin, before);
  munmap(begin + before + kBytes, kBytes - before);
  CountTaken(MemoryKind::kObjects, kBytes);
  return begin + before;
}

// The whole of it.
void UnmapChunk(Chunk* chunk) {
  constexpr size_t kBytes = HugePageArena::kChunkBytes;
  if (HasMemoryHooks()) return GiveBlock(chunk, kBytes, kBytes, MemoryKind::kObjects);
  munmap(chunk, kBytes);
  CountGiven(MemoryKind::kObjects, kBytes);
}

// A hint about a chunk of the system's own, which it may not follow. Of a host's memory none is
// given.
void Advise(void* chunk, int advice) {
  if (!HasMemoryHooks()) madvise(chunk, HugePageArena::kChunkBytes, advice);
}

Chunk* Chunks::Add(std::byte* memory) {
  if (count > 0) Advise(memory, MADV_HUGEPAGE);  // before it is touched
  auto* const chunk = new (memory) Chunk;
  chunk->huge = count > 0;
  chunk->used_bytes = kFirstOffset;
  chunk->next = first;
  if (first != nullptr) first->previous = chunk;
  first = chunk;
  ++count;
  return chunk;
}

void Chunks::Remove(Chunk* chunk) {
  (chunk->previous != nullptr ? chunk->previous->next : first) = chunk->next;
  if (chunk->next != nullptr) chunk->next->previous = chunk->previous;
  --count;
}

void* Chunks::TakeFrom(Chunk* chunk, size_t lines) {
  void* memory = nullptr;
  if (Free* const free = chunk->free[lines]; free != nullptr) {
    chunk->free[lines] = free->next;
    memory = free;
  } else if (chunk->used_bytes + lines * kCacheLineBytes <= HugePageArena::kChunkBytes) {
    memory = chunk->begin() + chunk->used_bytes;
    chunk->used_bytes += lines * kCacheLineBytes;
  } else {
    return nullptr;
  }
  ++chunk->live;
  if (!chunk->huge && chunk->used_bytes > HugePageArena::kChunkBytes / 2) {
    chunk->huge = true;
    Advise(chunk, MADV_HUGEPAGE);
    Advise(chunk, MADV_COLLAPSE);
  }
  return memory;
}

// Chunks are few: a GiB of objects has 512.
void* Chunks::TakeFromAny(size_t lines) {
  for (Chunk* chunk = first; chunk != nullptr; chunk = chunk->next) {
    if (void* const memory = TakeFrom(chunk, lines); memory != nullptr) return memory;
  }
  return nullptr;
}

// Threads that come without room at the same moment add a chunk each.
void* Chunks::Take(size_t lines) {
  {
    const std::lock_guard lock(mutex);
    if (void* const memory = TakeFromAny(lines); memory != nullptr) return memory;
  }
  std::byte* const memory = MapChunk();
  const std::lock_guard lock(mutex);
  return TakeFrom(Add(memory), lines);
}

void Chunks::Give(void* memory, size_t lines) {
  auto* const chunk = reinterpret_cast<Chunk*>(reinterpret_cast<uintptr_t>(memory) &
                                               ~uintptr_t{HugePageArena::kChunkBytes - 1});
  {
    const std::lock_guard lock(mutex);
    chunk->free[lines] = new (memory) Free{chunk->free[lines]};
    if (--chunk->live > 0) return;
    Remove(chunk);
  }
  UnmapChunk(chunk);
}

}  // namespace

void* HugePageArena::Take(size_t bytes) {
  if (kPlain || bytes > kMaxObjectBytes) {
    void* const memory = TakeBlock(bytes, kCacheLineBytes, MemoryKind::kObjects);
    WEFT_CHECK(memory != nullptr);  // System: or its host: out of memory, as for operator new
    return memory;
  }
  return All().Take(LinesOf(bytes));
}

void HugePageArena::Give(void* memory, size_t bytes) {
  if (memory == nullptr) return;
  if (kPlain || bytes > kMaxObjectBytes) {
    return GiveBlock(memory, bytes, kCacheLineBytes, MemoryKind::kObjects);
  }
  All().Give(memory, LinesOf(bytes));
}

size_t HugePageArena::chunks() {
  Chunks& all = All();
  const std::lock_guard lock(all.mutex);
  return all.count;
}

}  // namespace weft
