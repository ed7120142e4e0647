// A piece of this process's memory as the near end of a one-sided transfer.
//
//   auto buffer = channel->AllocateBuffer(4096);
//   memory.Read(0, SliceOf(**buffer, 0, 64));
//
// Threads: a value. Lifetime: whoever takes a slice says until when its bytes must stay untouched,
//   and the LocalMemory alive.
#pragma once

#include <cstddef>

#include "core/bytes.h"
#include "transport/buffer_pool.h"
#include "transport/local_memory.h"

namespace weft {

struct Slice {
  LocalMemory* memory = nullptr;
  size_t offset = 0;  // bytes
  size_t length = 0;  // bytes

  // Whether it lies in its memory. The other functions require it.
  bool valid() const {
    if (memory == nullptr) return false;
    const size_t size = memory->bytes().size();
    return offset <= size && length <= size - offset;
  }
  MutableByteSpan bytes() const { return memory->bytes().subspan(offset, length); }
};

// All of `memory`, or `length` bytes of it.
inline Slice SliceOf(LocalMemory& memory) { return {&memory, 0, memory.bytes().size()}; }
inline Slice SliceOf(LocalMemory& memory, size_t offset, size_t length) {
  return {&memory, offset, length};
}

// The same of a buffer.
inline Slice SliceOf(const Buffer& buffer) {
  return {&buffer.memory(), buffer.offset(), buffer.bytes().size()};
}
inline Slice SliceOf(const Buffer& buffer, size_t offset, size_t length) {
  return {&buffer.memory(), buffer.offset() + offset, length};
}

}  // namespace weft
