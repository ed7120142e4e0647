// A piece of this process's memory as the near end of a one-sided transfer. Buffers give it.
//
//   auto buffer = channel->AllocateBuffer(4096);
//   memory.Read(0, (*buffer)->slice(0, 64));
//
// Threads: a value. Lifetime: whoever takes a slice says until when its bytes must stay untouched,
//   and the buffer alive.
#pragma once

#include <cstddef>

#include "core/bytes.h"
#include "transport/local_memory.h"

namespace weft {

struct Slice {
  LocalMemory* memory = nullptr;
  size_t offset = 0;  // bytes
  size_t length = 0;  // bytes

  // Whether it lies in its memory. bytes() requires it, and operations refuse others.
  bool valid() const {
    if (memory == nullptr) return false;
    const size_t size = memory->bytes().size();
    return offset <= size && length <= size - offset;
  }
  MutableByteSpan bytes() const { return memory->bytes().subspan(offset, length); }
};

}  // namespace weft
