// Memory straight from the system, page by page: huge pages where there are some, on a NUMA node of
// choice, or behind a descriptor that another process could map.
//
// Huge pages (2 MiB) spare the processor's and the RDMA device's tables: one entry where small
// pages take 512. Reserved ones (vm.nr_hugepages) are tried first, then transparent ones, then
// small pages; pages() says what came out.
//
// Threads: any. Lifetime: unmapped at destruction, after every Region on it.
// Errors: RESOURCE_EXHAUSTED: the system has no such pages left. INVALID_ARGUMENT: no bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "core/bytes.h"

namespace weft {

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

struct MappedMemoryOptions {
  enum class HugePages : uint8_t {
    kTry = 1,      // where there are some
    kNever = 2,    // small pages
    kRequire = 3,  // reserved ones, or RESOURCE_EXHAUSTED
  };
  enum class Source : uint8_t {
    kAnonymous = 1,  // of this process alone
    kMemfd = 2,      // a file without a name: descriptor() can be passed on
  };
  HugePages huge_pages = HugePages::kTry;
  Source source = Source::kAnonymous;
  int numa_node = -1;  // preferred; -1: that of the thread that first touches a page. Best effort
};

class MappedMemory {
 public:
  enum class Pages : uint8_t {
    kSmall = 1,
    kTransparentHuge = 2,  // aligned and advised: huge as far as the kernel finds some
    kHuge = 3,             // reserved
  };

  // At least `bytes` bytes of zeros; whole pages of the kind that came out.
  static absl::StatusOr<MappedMemory> Map(size_t bytes, const MappedMemoryOptions& options = {});
  MappedMemory(MappedMemory&& from) noexcept;
  MappedMemory& operator=(MappedMemory&& from) noexcept;
  ~MappedMemory();

  MutableByteSpan bytes() const { return memory_; }
  Pages pages() const { return pages_; }
  // kMemfd: the file, of bytes().size() bytes, sealed against changes of its size. Else -1.
  int descriptor() const { return descriptor_; }

 private:
  MappedMemory(MutableByteSpan memory, Pages pages, int descriptor)
      : memory_(memory), pages_(pages), descriptor_(descriptor) {}

  static absl::StatusOr<MappedMemory> MapPages(size_t bytes, Pages pages,
                                               MappedMemoryOptions::Source source);

  MutableByteSpan memory_;
  Pages pages_;
  int descriptor_;
};

}  // namespace weft
