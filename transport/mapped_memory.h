// Memory straight from the system, page by page: huge pages where there are some, on a NUMA node of
// choice, or in a file that other processes can map.
//
// Huge pages (2 MiB) spare the processor's and the RDMA device's tables: one entry where small
// pages take 512. Reserved ones (vm.nr_hugepages) are tried first, then transparent ones, then
// small pages; pages() says what came out.
//
// Memory in a file (kMemfd) is what peers on the same host reach without a system call: they map
// the file, and copy (transport/shm/). What is different about it:
//   - a child of fork() shares it: what either writes the other sees. Programs that fork to keep a
//     snapshot want kAnonymous.
//   - its transparent huge pages have a switch of their own, which most systems leave off
//     (/sys/kernel/mm/transparent_hugepage/shmem_enabled). There they are made when the memory is
//     mapped, from Linux 6.1 on (huge_mapping.h): all of it exists from then on, used or not. More
//     than kMostMadeHugeBytes in one piece has small pages.
//   - a peer that has the file mapped sees all of it, to the end of its last page, and keeps its
//     memory alive for a while after it was unmapped here. (Not that of a MemoryArena, which goes
//     back at once.) So memory for an export of its own lies in a file of its own.
//
// With a host's hooks (core/memory_hooks.h) anonymous memory is the host's, and so is what pages it
// lies on: pages() is kSmall, whatever they are.
//
// Threads: any. Lifetime: unmapped at destruction, after every Region on it.
// Errors: RESOURCE_EXHAUSTED: the system has no such pages left, or its host no memory.
//   INVALID_ARGUMENT: no bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/huge_mapping.h"
#include "transport/memory_file.h"
#include "transport/options.h"

namespace weft {

class MemoryArena;

class MappedMemory {
 public:
  enum class Pages : uint8_t {
    kSmall = 1,
    kTransparentHuge = 2,  // made huge, or advised: as far as the kernel finds some
    kHuge = 3,             // reserved
  };

  // Takes 0.3 s. What is larger may be meant to be sparse.
  static constexpr size_t kMostMadeHugeBytes = size_t{1} << 30;

  // What a mapping of `bytes` takes where huge pages are tried, whether there are some or not:
  // whole pages of 4 KiB, and above 1 MiB of 2 MiB. REQUIRES: bytes <= 2^63.
  static size_t TakenBy(size_t bytes);
  // At least `bytes` bytes of zeros; whole pages of the kind that came out.
  static absl::StatusOr<MappedMemory> Map(size_t bytes, const MappedMemoryOptions& options = {});
  MappedMemory(MappedMemory&& from) noexcept;
  MappedMemory& operator=(MappedMemory&& from) noexcept;
  ~MappedMemory();

  MutableByteSpan bytes() const { return memory_; }
  Pages pages() const { return pages_; }
  // kMemfd: the file, of bytes().size() bytes, sealed against changes of its size; of an arena: the
  // arena's file. Else -1.
  int descriptor() const { return file_ == nullptr ? -1 : file_->descriptor(); }

 private:
  friend class MemoryArena;

  MappedMemory() = default;

  static absl::StatusOr<MappedMemory> MapAnyPages(size_t bytes, const MappedMemoryOptions& options,
                                                  MemoryArena* arena);
  static absl::StatusOr<MappedMemory> MapPages(size_t bytes, Pages pages,
                                               const MappedMemoryOptions& options,
                                               MemoryArena* arena);
  static absl::StatusOr<MappedMemory> TakeFromHost(size_t bytes);
  absl::Status UseFile(size_t bytes, const MappedMemoryOptions& options, MemoryArena* arena);
  bool MakeHuge();

  MutableByteSpan memory_;
  Pages pages_ = Pages::kSmall;
  std::shared_ptr<MemoryFile> file_;  // null: anonymous
  uint64_t file_offset_ = 0;
  bool from_arena_ = false;
  size_t host_alignment_ = 0;  // of memory from a host's hooks; 0: it is mapped
};

// Mappings out of few files: one for each kind of pages, as large as all mappings together may
// become, and sparse. Where there can be no such file, memory is anonymous; that costs speed on the
// shared-memory path, and nothing else.
//
// Threads: one at a time. Lifetime: mappings may outlive it.
class MemoryArena {
 public:
  // `max_bytes`: of all mappings at one time. What is asked for beyond it (rounding to pages, or
  // no room in one piece) gets files of its own.
  MemoryArena(const MappedMemoryOptions& options, uint64_t max_bytes)
      : options_(options), max_bytes_(max_bytes) {}

  // As MappedMemory::Map().
  absl::StatusOr<MappedMemory> Map(size_t bytes);

 private:
  friend class MappedMemory;

  absl::StatusOr<std::shared_ptr<MemoryFile>> FileFor(MappedMemory::Pages pages);

  MappedMemoryOptions options_;
  const uint64_t max_bytes_;
  std::shared_ptr<MemoryFile> small_;  // and transparent huge pages
  std::shared_ptr<MemoryFile> huge_;
};

}  // namespace weft
