// What libraft allocates while one of these is there is full of kDirt: so a test sees what libraft
// hands on without having written it. And of one size it gets nothing, if a test wants that.
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

  // `refused`: a number of bytes; 0: none.
  explicit DirtyHeap(size_t refused = 0) : refused_(refused) {
    heap_.data = this;
    heap_.malloc = [](void* self, size_t bytes) {
      const size_t refused = static_cast<DirtyHeap*>(self)->refused_;
      void* const memory = bytes == refused && refused != 0 ? nullptr : std::malloc(bytes);
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
  const size_t refused_;
  raft_heap heap_ = {};
};

}  // namespace weft::embed::test
