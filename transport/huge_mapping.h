// Mappings whose pages the processor can translate 2 MiB at a time.
//
// Address and offset in the file have to agree in their lower 21 bits for that, in every process
// that maps the file; and the file's own pages have to be huge. The kernel makes those of a file in
// memory huge by itself only where its administrator says so (shmem_enabled, "never" on most
// systems). From Linux 6.1 on a process may ask for it nevertheless (MADV_COLLAPSE).
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/bytes.h"

namespace weft {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

// As mmap(2) for reading, and for writing if `writable`, at a multiple of kHugePageBytes; nullptr
// and errno if it cannot be. REQUIRES: `flags` do not contain MAP_FIXED.
std::byte* MapForHugePages(size_t bytes, int flags, int descriptor, uint64_t offset,
                           bool writable = true);

// Makes the pages of a file in memory huge, now, and so those of all who have it mapped. True: all
// of them are. False: some are not, or none: the kernel is older, or has no huge page free; the
// memory is as good as before. Takes 0.3 ms/MiB: the pages exist from then on, whoever uses them.
// They come from the NUMA node that the memory's policy says, else from this thread's.
// REQUIRES: `memory` is zeros that nobody uses yet: whole huge pages, from MapForHugePages() at an
//   offset that is a multiple of their size.
bool CollapseToHugePages(MutableByteSpan memory);

}  // namespace weft
