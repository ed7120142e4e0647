#include "transport/huge_mapping.h"

#include <sys/mman.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace weft {
namespace {

// The kernel collapses only what has a page table: one byte of each huge page is touched first.
// That also settles which node they come from.
void TouchEach(MutableByteSpan memory) {
  for (size_t at = 0; at < memory.size(); at += kHugePageBytes) memory[at] = std::byte{};
}

}  // namespace

std::byte* MapForHugePages(size_t bytes, int flags, int descriptor, uint64_t offset,
                           bool writable) {
  const size_t more = bytes + kHugePageBytes;
  void* const reserved =
      mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(reserved);
  const size_t skip = -reinterpret_cast<uintptr_t>(first) % kHugePageBytes;
  std::byte* const aligned = first + skip;
  if (skip > 0) munmap(first, skip);
  munmap(aligned + bytes, kHugePageBytes - skip);
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  if (mmap(aligned, bytes, protection, flags | MAP_FIXED, descriptor, static_cast<off_t>(offset)) !=
      MAP_FAILED) {
    return aligned;
  }
  // Not unmapped: the failed call may have done that already, and another thread have got the place
  // since. (Where it has not, some addresses are lost, and no memory.)
  return nullptr;
}

bool CollapseToHugePages(MutableByteSpan memory) {
  TouchEach(memory);
  return madvise(memory.data(), memory.size(), MADV_COLLAPSE) == 0;
}

}  // namespace weft
