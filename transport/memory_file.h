// Files in memory (memfd): what lets a peer of this host map memory of this process, and copy to
// and from it without a system call.
//
// A MemoryFile has a fixed size, is sealed (it cannot shrink under whoever has it mapped, which
// would be a SIGBUS), and carries a random identity in its name: /proc/PID/fd/N of the owner leads
// to "/memfd:weft-0123456789abcdef (deleted)". So a peer that was told process, descriptor and
// identity can open it, and be sure that it is the file that was meant: descriptors are used again,
// identities are not.
//
// It is sparse: memory that nobody wrote to does not exist. A pool therefore makes one of the size
// of its bound, and maps ranges of it as it needs them: one descriptor however many slabs there
// are, and one mapping at each peer. A range that goes back gives its memory to the system at once
// (a hole), also where peers still have the file mapped.
//
// A file that peers may only read is sealed against their writing, once its owner has it mapped for
// writing: whoever maps it later maps it for reading, or not at all. The kernel sees to that
// (F_SEAL_FUTURE_WRITE, Linux 5.1; before, their rights are what they check themselves).
//
// FindFile() tells for any memory of this process in which file it lies, if it does. Mappings are
// made known by MappedMemory (mapped_memory.h). It is asked when a region is registered, never when
// bytes are moved.
//
// Threads: any; everything here locks.
// Lifetime: the file ends with its last owner here and its last mapping, at peers too.
// Trust: processes of one user can open each other's descriptors (/proc), as they can read and
//   write each other's memory.
// Invariants: ranges in use do not overlap; free ranges are sorted, and none touches the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "core/bytes.h"

namespace weft {

class MemoryFile {
 public:
  enum class Peers : uint8_t {
    kReadAndWrite = 1,
    kOnlyRead = 2,  // from LetPeersOnlyRead() on
  };

  // `reserved_huge_pages`: of those (vm.nr_hugepages); `bytes` is then a multiple of 2 MiB, else of
  // a page. RESOURCE_EXHAUSTED: no descriptor left, or a limit on the size of files.
  static absl::StatusOr<std::shared_ptr<MemoryFile>> Create(uint64_t bytes,
                                                            bool reserved_huge_pages,
                                                            Peers peers = Peers::kReadAndWrite);
  ~MemoryFile();
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  int descriptor() const { return descriptor_; }
  uint64_t identity() const { return identity_; }
  uint64_t bytes() const { return bytes_; }

  // Nobody can map it for writing any more. Mappings for writing that there are stay. REQUIRES: it
  // was made with kOnlyRead; Give() is not used.
  void LetPeersOnlyRead();

  // The first free range of `bytes` that begins at a multiple of `alignment`; nullopt: there is
  // none. REQUIRES: alignment is a power of two.
  std::optional<uint64_t> Take(uint64_t bytes, uint64_t alignment);
  // Gives a range back; its memory goes to the system, and reads as zeros when it is taken again.
  void Give(uint64_t offset, uint64_t bytes);

  // What /proc/PID/fd/N of such a file reads.
  static std::string LinkOf(uint64_t identity);

 private:
  MemoryFile(int descriptor, uint64_t identity, uint64_t bytes)
      : descriptor_(descriptor), identity_(identity), bytes_(bytes), free_({{0, bytes}}) {}

  // Constant after construction.
  const int descriptor_;
  const uint64_t identity_;
  const uint64_t bytes_;

  std::mutex mutex_;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes; guarded by mutex_
};

// Where memory lies. identity == 0: in no file.
struct FilePlace {
  uint64_t identity = 0;
  uint64_t offset = 0;  // bytes
  int descriptor = -1;
};

// REQUIRES: `memory` is mapped from `offset` of `file`, until ForgetFileMapping(); mappings do not
// overlap.
void TellFileMapping(ByteSpan memory, const MemoryFile& file, uint64_t offset);
void ForgetFileMapping(ByteSpan memory);

// In which file all of `memory` lies.
FilePlace FindFile(ByteSpan memory);

// The bytes of the file in memory behind a descriptor that a peer has handed over.
// INVALID_ARGUMENT: it is no such file, or not sealed against shrinking and growing. The seals are
// looked at before the size, which they hold; and before anything that could wait: another file
// system may ask a process of the peer's choice for the size, and get no answer.
absl::StatusOr<uint64_t> SealedFileBytes(int descriptor);

}  // namespace weft
