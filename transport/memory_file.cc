#include "transport/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "absl/strings/str_format.h"
#include "core/check.h"
#include "core/fork_guard.h"
#include "core/process_wide.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MFD_HUGETLB
#define MFD_HUGETLB 0x0004U
#endif

namespace weft {
namespace {

constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

std::string NameOf(uint64_t identity) {
  return StrCat("weft-", absl::StrFormat("%016x", identity));
}

uint64_t NewIdentity() {
  for (;;) {
    const uint64_t identity = SecureRandom64();
    if (identity != 0) return identity;  // 0 means: no file
  }
}

// The mappings of this process, by where they begin.
class FileMappings {
 public:
  // Used by destructors of static objects, too.
  static FileMappings& Get() {
    static constinit ProcessWide<FileMappings> mappings;
    return mappings.Get();
  }

  void Add(ByteSpan memory, const FilePlace& place) {
    const std::lock_guard lock(mutex_);
    mappings_[Begin(memory)] = {memory.size(), place};
  }
  void Remove(ByteSpan memory) {
    const std::lock_guard lock(mutex_);
    WEFT_CHECK(mappings_.erase(Begin(memory)) == 1);  // Ours: ranges are given back once
  }
  FilePlace Find(ByteSpan memory) {
    const std::lock_guard lock(mutex_);
    auto next = mappings_.upper_bound(Begin(memory));
    if (next == mappings_.begin()) return {};
    const auto& [begin, mapping] = *std::prev(next);
    const uint64_t from = Begin(memory) - begin;
    if (from > mapping.bytes || memory.size() > mapping.bytes - from) return {};
    FilePlace place = mapping.place;
    place.offset += from;
    return place;
  }

 private:
  struct Mapping {
    uint64_t bytes;
    FilePlace place;
  };

  static uintptr_t Begin(ByteSpan memory) { return reinterpret_cast<uintptr_t>(memory.data()); }

  ProcessMutex mutex_;
  std::map<uintptr_t, Mapping> mappings_;  // guarded by mutex_
};

}  // namespace

std::string MemoryFile::LinkOf(uint64_t identity) {
  return StrCat("/memfd:", NameOf(identity), " (deleted)");
}

absl::StatusOr<std::shared_ptr<MemoryFile>> MemoryFile::Create(uint64_t bytes,
                                                               bool reserved_huge_pages,
                                                               Peers peers) {
  const uint64_t identity = NewIdentity();
  const unsigned huge = reserved_huge_pages ? MFD_HUGETLB : 0;
  const int fd = memfd_create(NameOf(identity).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING | huge);
  if (fd < 0) return StatusFromErrno(errno, StrCat("making a memfd of ", bytes, " bytes"));
  std::shared_ptr<MemoryFile> file(new MemoryFile(fd, identity, bytes));
  const int seals = kSizeSeals | (peers == Peers::kOnlyRead ? 0 : F_SEAL_SEAL);
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, seals) != 0) {
    return StatusFromErrno(errno, StrCat("sizing and sealing a memfd of ", bytes, " bytes"));
  }
  return file;
}

MemoryFile::~MemoryFile() { close(descriptor_); }

void MemoryFile::LetPeersOnlyRead() {
  if (fcntl(descriptor_, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0) return;
  // A kernel that does not know it.
  static_cast<void>(fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SEAL));
}

std::optional<uint64_t> MemoryFile::Take(uint64_t bytes, uint64_t alignment) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const auto [first, length] = *range;
    const uint64_t offset = AlignUp(first, alignment);
    const uint64_t skipped = offset - first;
    if (length < skipped || length - skipped < bytes) continue;
    free_.erase(range);
    if (skipped > 0) free_[first] = skipped;
    if (length - skipped > bytes) free_[offset + bytes] = length - skipped - bytes;
    return offset;
  }
  return std::nullopt;
}

void MemoryFile::Give(uint64_t offset, uint64_t bytes) {
  // On failure the memory stays, and its old bytes with it: the range is then not used again.
  if (fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>(bytes)) != 0) {
    return;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  auto next = free_.lower_bound(offset);
  // Ours: ranges are given back once
  WEFT_CHECK(next == free_.end() || offset + bytes <= next->first);
  if (next != free_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    WEFT_CHECK(before->first + before->second <= offset);  // Ours: ranges are given back once
    if (before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  }
  free_[offset] = bytes;
}

void TellFileMapping(ByteSpan memory, const MemoryFile& file, uint64_t offset) {
  FileMappings::Get().Add(memory, {file.identity(), offset, file.descriptor()});
}

void ForgetFileMapping(ByteSpan memory) { FileMappings::Get().Remove(memory); }

FilePlace FindFile(ByteSpan memory) { return FileMappings::Get().Find(memory); }

absl::StatusOr<uint64_t> SealedFileBytes(int descriptor) {
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0) return absl::InvalidArgumentError("a peer's descriptor is no file in memory");
  if ((seals & kSizeSeals) != kSizeSeals) {
    return absl::InvalidArgumentError(
        "a peer's memory is not sealed against shrinking and growing");
  }
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return StatusFromErrno(errno, "fstat of a peer's memory");
  return static_cast<uint64_t>(facts.st_size);
}

}  // namespace weft
