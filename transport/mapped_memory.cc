#include "transport/mapped_memory.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/status.h"
#include "core/strings.h"

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif

namespace weft {
namespace {

using Pages = MappedMemory::Pages;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

size_t PageBytes(Pages pages) {
  return pages == Pages::kSmall ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : kHugePageBytes;
}

const char* NameOf(Pages pages) {
  switch (pages) {
    case Pages::kSmall:
      return "small";
    case Pages::kTransparentHuge:
      return "transparent huge";
    case Pages::kHuge:
      return "reserved huge";
  }
  return "";
}

// Sealed: a file that shrinks under a mapping kills who touches it.
int OpenMemfd(size_t bytes, Pages pages) {
  const unsigned huge = pages == Pages::kHuge ? MFD_HUGETLB : 0;
  const int fd = memfd_create("weft", MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);
  if (fd < 0) return -1;
  if (ftruncate(fd, static_cast<off_t>(bytes)) == 0 &&
      fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// Transparent huge pages begin at multiples of their size: what is mapped too much goes back.
std::byte* MapAligned(size_t bytes, size_t alignment, int flags, int fd) {
  const size_t more = bytes + alignment;
  void* const reserved = mmap(nullptr, more, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(reserved);
  const size_t skip =
      RoundUp(reinterpret_cast<uintptr_t>(first), alignment) - reinterpret_cast<uintptr_t>(first);
  std::byte* const aligned = first + skip;
  if (skip > 0) munmap(first, skip);
  munmap(aligned + bytes, more - skip - bytes);
  if (mmap(aligned, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) != MAP_FAILED) {
    return aligned;
  }
  const int error = errno;
  munmap(aligned, bytes);
  errno = error;
  return nullptr;
}

// Best effort: without it the memory is only farther away.
void PreferNode(MutableByteSpan memory, int node) {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= static_cast<int>(kBits)) return;
  const unsigned long mask = 1UL << node;
  syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, &mask, kBits + 1, 0);
}

}  // namespace

absl::StatusOr<MappedMemory> MappedMemory::MapPages(size_t bytes, Pages pages,
                                                    MappedMemoryOptions::Source source) {
  const size_t page = PageBytes(pages);
  if (bytes > ~size_t{0} / 2)
    return absl::ResourceExhaustedError(StrCat("mapping ", bytes, " bytes"));
  bytes = RoundUp(bytes, page);
  int fd = -1;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (source == MappedMemoryOptions::Source::kMemfd) {
    fd = OpenMemfd(bytes, pages);
    if (fd < 0) return StatusFromErrno(errno, StrCat("making a memfd of ", bytes, " bytes"));
    flags = MAP_SHARED;
  } else if (pages == Pages::kHuge) {
    flags |= MAP_HUGETLB;
  }
  std::byte* const memory = MapAligned(bytes, page, flags, fd);
  if (memory == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::ResourceExhaustedError(
        StrCat("mapping ", bytes, " bytes of ", NameOf(pages),
               " pages: ", StatusFromErrno(error, "mmap").message(),
               pages == Pages::kHuge ? "; see vm.nr_hugepages" : ""));
  }
  if (pages == Pages::kTransparentHuge && madvise(memory, bytes, MADV_HUGEPAGE) != 0) {
    pages = Pages::kSmall;
  }
  return MappedMemory({memory, bytes}, pages, fd);
}

absl::StatusOr<MappedMemory> MappedMemory::Map(size_t bytes, const MappedMemoryOptions& options) {
  using HugePages = MappedMemoryOptions::HugePages;
  if (bytes == 0) return absl::InvalidArgumentError("mapping 0 bytes");
  // Less than half of a huge page in use would waste more than it spares.
  const bool worth_it = bytes > kHugePageBytes / 2;
  absl::StatusOr<MappedMemory> memory = absl::UnavailableError("not tried");
  if (options.huge_pages == HugePages::kRequire ||
      (options.huge_pages == HugePages::kTry && worth_it)) {
    memory = MapPages(bytes, Pages::kHuge, options.source);
  }
  if (!memory.ok() && options.huge_pages != HugePages::kRequire) {
    const bool transparent = options.huge_pages == HugePages::kTry && worth_it;
    memory = MapPages(bytes, transparent ? Pages::kTransparentHuge : Pages::kSmall, options.source);
  }
  if (memory.ok()) PreferNode(memory->bytes(), options.numa_node);
  return memory;
}

MappedMemory::MappedMemory(MappedMemory&& from) noexcept
    : memory_(std::exchange(from.memory_, {})),
      pages_(from.pages_),
      descriptor_(std::exchange(from.descriptor_, -1)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& from) noexcept {
  std::swap(memory_, from.memory_);
  std::swap(pages_, from.pages_);
  std::swap(descriptor_, from.descriptor_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (!memory_.empty()) munmap(memory_.data(), memory_.size());
  if (descriptor_ >= 0) close(descriptor_);
}

}  // namespace weft
