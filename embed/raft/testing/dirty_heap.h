// What libraft allocates while one of these is there is full of kDirt: so a test sees what libraft
// hands on without having written it.
//
// Threads: one, that of libraft. Lifetime: what was allocated may stay; it is freed as ever.
#pragma once

#include <cstdlib>
#include <cstring>

#include "embed/raft/libraft.h"

namespace weft::embed::test {

class DirtyHeap {
 public:
  static constexpr char kDirt = '\xa5';  // neither text nor a small number

  DirtyHeap() {
    heap_.malloc = [](void*, size_t bytes) {
      void* const memory = std::malloc(bytes);
      if (memory != nullptr) std::memset(memory, kDirt, bytes);
      return memory;
    };
    heap_.free = [](void*, void* memory) { std::free(memory); };
    heap_.calloc = [](void*, size_t count, size_t bytes) { return std::calloc(count, bytes); };
    heap_.realloc = [](void*, void* memory, size_t bytes) { return std::realloc(memory, bytes); };
    heap_.aligned_alloc = [](void*, size_t alignment, size_t bytes) {
      return std::aligned_alloc(alignment, bytes);
    };
    heap_.aligned_free = [](void*, size_t, void* memory) { std::free(memory); };
    raft_heap_set(&heap_);
  }
  ~DirtyHeap() { raft_heap_set_default(); }
  DirtyHeap(const DirtyHeap&) = delete;
  DirtyHeap& operator=(const DirtyHeap&) = delete;

 private:
  raft_heap heap_ = {};
};

}  // namespace weft::embed::test
