#include "transport/mapped_memory.h"

#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <string_view>
#include <utility>

#include "core/block_memory.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/huge_mapping.h"

namespace weft {
namespace {

using Pages = MappedMemory::Pages;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

size_t PageBytes(Pages pages) {
  return pages == Pages::kSmall ? static_cast<size_t>(sysconf(_SC_PAGESIZE)) : kHugePageBytes;
}

// Less than half of a huge page in use would waste more than it spares.
bool IsWorthHugePages(size_t bytes) { return bytes > kHugePageBytes / 2; }

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

// Whether the kernel gives transparent huge pages to files in memory that ask for them.
bool FilesMayBeHuge() {
  static constinit ProcessWide<bool> may;
  return may.Get([] {
    char text[128] = {};
    const int fd = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    const ssize_t length = read(fd, text, sizeof(text) - 1);
    close(fd);
    const std::string_view words(text, length > 0 ? static_cast<size_t>(length) : 0);
    return words.find("[never]") == words.npos && words.find("[deny]") == words.npos;
  });
}

MemoryKind KindOf(MappedMemoryOptions::Source source) {
  return source == MappedMemoryOptions::Source::kMemfd ? MemoryKind::kShared : MemoryKind::kBuffers;
}

// Where the kernel likes: with reserved huge pages at a multiple of their size.
std::byte* MapAnywhere(size_t bytes, int flags, int fd, uint64_t offset) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}

// What an arena's mappings are for differs.
MemoryFile::Peers PeersOf(const MappedMemoryOptions& options, const MemoryArena* arena) {
  return options.peers_may_write || arena != nullptr ? MemoryFile::Peers::kReadAndWrite
                                                     : MemoryFile::Peers::kOnlyRead;
}

// Best effort: without it the memory is only farther away.
void PreferNode(MutableByteSpan memory, int node) {
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= static_cast<int>(kBits)) return;
  const unsigned long mask = 1UL << node;
  syscall(SYS_mbind, memory.data(), memory.size(), MPOL_PREFERRED, &mask, kBits + 1, 0);
}

}  // namespace

absl::Status MappedMemory::UseFile(size_t bytes, const MappedMemoryOptions& options,
                                   MemoryArena* arena) {
  if (arena != nullptr) {
    WEFT_ASSIGN_OR_RETURN(std::shared_ptr<MemoryFile> file, arena->FileFor(pages_));
    if (const std::optional<uint64_t> offset = file->Take(bytes, PageBytes(pages_));
        offset.has_value()) {
      file_ = std::move(file);
      file_offset_ = *offset;
      from_arena_ = true;
      return absl::OkStatus();
    }
  }
  WEFT_ASSIGN_OR_RETURN(file_,
                        MemoryFile::Create(bytes, pages_ == Pages::kHuge, PeersOf(options, arena)));
  return absl::OkStatus();
}

// The kernel does it when the pages are touched, where its administrator lets it; else it is done
// now.
bool MappedMemory::MakeHuge() {
  const bool advised = madvise(memory_.data(), memory_.size(), MADV_HUGEPAGE) == 0;
  if (file_ == nullptr || FilesMayBeHuge()) return advised;
  return memory_.size() <= MappedMemory::kMostMadeHugeBytes && CollapseToHugePages(memory_);
}

absl::StatusOr<MappedMemory> MappedMemory::MapPages(size_t bytes, Pages pages,
                                                    const MappedMemoryOptions& options,
                                                    MemoryArena* arena) {
  const size_t page = PageBytes(pages);
  if (bytes > ~size_t{0} / 2)
    return absl::ResourceExhaustedError(StrCat("mapping ", bytes, " bytes"));
  bytes = RoundUp(bytes, page);
  MappedMemory mapped;
  mapped.pages_ = pages;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (options.source == MappedMemoryOptions::Source::kMemfd) {
    WEFT_RETURN_IF_ERROR(mapped.UseFile(bytes, options, arena));
    flags = MAP_SHARED;
  } else if (pages == Pages::kHuge) {
    flags |= MAP_HUGETLB;
  }
  std::byte* const memory =
      pages == Pages::kTransparentHuge
          ? MapForHugePages(bytes, flags, mapped.descriptor(), mapped.file_offset_)
          : MapAnywhere(bytes, flags, mapped.descriptor(), mapped.file_offset_);
  if (memory == nullptr) {
    const int error = errno;
    if (mapped.from_arena_) mapped.file_->Give(mapped.file_offset_, bytes);
    return absl::ResourceExhaustedError(
        StrCat("mapping ", bytes, " bytes of ", NameOf(pages),
               " pages: ", StatusFromErrno(error, "mmap").message(),
               pages == Pages::kHuge ? "; see vm.nr_hugepages" : ""));
  }
  mapped.memory_ = {memory, bytes};
  CountTaken(KindOf(options.source), bytes);
  if (mapped.file_ != nullptr) TellFileMapping(mapped.memory_, *mapped.file_, mapped.file_offset_);
  PreferNode(mapped.memory_, options.numa_node);
  if (pages == Pages::kTransparentHuge && !mapped.MakeHuge()) mapped.pages_ = Pages::kSmall;
  if (mapped.file_ != nullptr && PeersOf(options, arena) == MemoryFile::Peers::kOnlyRead) {
    mapped.file_->LetPeersOnlyRead();
  }
  return mapped;
}

absl::StatusOr<MappedMemory> MappedMemory::TakeFromHost(size_t bytes) {
  MappedMemory mapped;
  mapped.host_alignment_ = PageBytes(bytes < kHugePageBytes ? Pages::kSmall : Pages::kHuge);
  if (bytes > ~size_t{0} / 2)
    return absl::ResourceExhaustedError(StrCat("mapping ", bytes, " bytes"));
  bytes = RoundUp(bytes, mapped.host_alignment_);
  void* const memory = TakeBlock(bytes, mapped.host_alignment_, MemoryKind::kBuffers);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(
        StrCat("MemoryHooks::take has no ", bytes, " bytes for a buffer"));
  }
  mapped.memory_ = {static_cast<std::byte*>(memory), bytes};
  return mapped;
}

absl::StatusOr<MappedMemory> MappedMemory::MapAnyPages(size_t bytes,
                                                       const MappedMemoryOptions& options,
                                                       MemoryArena* arena) {
  using HugePages = MappedMemoryOptions::HugePages;
  if (bytes == 0) return absl::InvalidArgumentError("mapping 0 bytes");
  if (options.source == MappedMemoryOptions::Source::kAnonymous && HasMemoryHooks()) {
    return TakeFromHost(bytes);
  }
  const bool worth_it = IsWorthHugePages(bytes);
  absl::StatusOr<MappedMemory> memory = absl::UnavailableError("not tried");
  if (options.huge_pages == HugePages::kRequire ||
      (options.huge_pages == HugePages::kTry && worth_it)) {
    memory = MapPages(bytes, Pages::kHuge, options, arena);
  }
  if (!memory.ok() && options.huge_pages != HugePages::kRequire) {
    const bool transparent = options.huge_pages == HugePages::kTry && worth_it;
    memory = MapPages(bytes, transparent ? Pages::kTransparentHuge : Pages::kSmall, options, arena);
  }
  return memory;
}

size_t MappedMemory::TakenBy(size_t bytes) {
  return RoundUp(bytes, PageBytes(IsWorthHugePages(bytes) ? Pages::kHuge : Pages::kSmall));
}

absl::StatusOr<MappedMemory> MappedMemory::Map(size_t bytes, const MappedMemoryOptions& options) {
  return MapAnyPages(bytes, options, /*arena=*/nullptr);
}

MappedMemory::MappedMemory(MappedMemory&& from) noexcept { *this = std::move(from); }

MappedMemory& MappedMemory::operator=(MappedMemory&& from) noexcept {
  std::swap(memory_, from.memory_);
  std::swap(pages_, from.pages_);
  std::swap(file_, from.file_);
  std::swap(file_offset_, from.file_offset_);
  std::swap(from_arena_, from.from_arena_);
  std::swap(host_alignment_, from.host_alignment_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (memory_.empty()) return;
  if (host_alignment_ != 0) {
    GiveBlock(memory_.data(), memory_.size(), host_alignment_, MemoryKind::kBuffers);
    return;
  }
  if (file_ != nullptr) ForgetFileMapping(memory_);
  munmap(memory_.data(), memory_.size());
  CountGiven(file_ != nullptr ? MemoryKind::kShared : MemoryKind::kBuffers, memory_.size());
  if (from_arena_) file_->Give(file_offset_, memory_.size());
}

// --- MemoryArena --------------------------------------------------------------------------------

absl::StatusOr<MappedMemory> MemoryArena::Map(size_t bytes) {
  absl::StatusOr<MappedMemory> memory = MappedMemory::MapAnyPages(bytes, options_, this);
  if (memory.ok() || bytes == 0 || options_.source == MappedMemoryOptions::Source::kAnonymous) {
    return memory;
  }
  MappedMemoryOptions anonymous = options_;
  anonymous.source = MappedMemoryOptions::Source::kAnonymous;
  return MappedMemory::Map(bytes, anonymous);
}

absl::StatusOr<std::shared_ptr<MemoryFile>> MemoryArena::FileFor(MappedMemory::Pages pages) {
  const bool is_huge = pages == MappedMemory::Pages::kHuge;
  std::shared_ptr<MemoryFile>& file = is_huge ? huge_ : small_;
  if (file == nullptr) {
    WEFT_ASSIGN_OR_RETURN(file, MemoryFile::Create(RoundUp(max_bytes_, kHugePageBytes), is_huge));
  }
  return file;
}

}  // namespace weft
