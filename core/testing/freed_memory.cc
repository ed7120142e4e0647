#include "core/testing/freed_memory.h"

#include <malloc.h>
#include <string.h>  // memmem

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<const std::string_view*> wanted{nullptr};
std::atomic<size_t> found{0};

void Free(void* memory) {
  const std::string_view* const text = wanted.load(std::memory_order_acquire);
  if (memory != nullptr && text != nullptr &&
      ::memmem(memory, ::malloc_usable_size(memory), text->data(), text->size()) != nullptr) {
    ++found;
  }
  std::free(memory);
}

void* Allocate(size_t bytes, size_t alignment) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, alignment, bytes) != 0) std::abort();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return Allocate(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return Allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace weft {

FreedMemory::FreedMemory(std::string_view text) {
  found = 0;
  wanted = new std::string_view(text);
}

FreedMemory::~FreedMemory() { delete wanted.exchange(nullptr); }

size_t FreedMemory::blocks_with_it() const { return found; }

}  // namespace weft
