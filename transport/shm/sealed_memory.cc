#include "transport/shm/sealed_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "core/block_memory.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/memory_file.h"

namespace weft {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

}  // namespace

absl::StatusOr<SealedMemory> SealedMemory::Create(const char* name, size_t bytes) {
  SealedMemory memory;
  memory.descriptor_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory.descriptor_ < 0) return StatusFromErrno(errno, "memfd_create of shared memory");
  if (ftruncate(memory.descriptor_, static_cast<off_t>(bytes)) != 0 ||
      fcntl(memory.descriptor_, F_ADD_SEALS, kSeals) != 0) {
    return StatusFromErrno(errno, StrCat("sizing and sealing ", bytes, " bytes of shared memory"));
  }
  WEFT_RETURN_IF_ERROR(memory.Map(memory.descriptor_, bytes));
  memory.is_own_ = true;
  CountTaken(MemoryKind::kShared, bytes);
  return memory;
}

absl::StatusOr<SealedMemory> SealedMemory::Open(int descriptor, size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(const uint64_t found, SealedFileBytes(descriptor));
  if (found != bytes) {
    return absl::InvalidArgumentError(
        StrCat("a peer's memory has ", found, " bytes instead of ", bytes, ": another layout"));
  }
  SealedMemory memory;
  WEFT_RETURN_IF_ERROR(memory.Map(descriptor, bytes));
  return memory;
}

absl::Status SealedMemory::Map(int descriptor, size_t bytes) {
  void* const place = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (place == MAP_FAILED) return StatusFromErrno(errno, "mapping shared memory");
  // A child of fork() is no end of these rings.
  madvise(place, bytes, MADV_DONTFORK);
  data_ = static_cast<std::byte*>(place);
  bytes_ = bytes;
  return absl::OkStatus();
}

SealedMemory& SealedMemory::operator=(SealedMemory&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  descriptor_ = std::exchange(other.descriptor_, -1);
  is_own_ = std::exchange(other.is_own_, false);
  return *this;
}

void SealedMemory::Reset() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (std::exchange(is_own_, false)) CountGiven(MemoryKind::kShared, bytes_);
  if (descriptor_ >= 0) close(descriptor_);
  data_ = nullptr;
  descriptor_ = -1;
}

absl::StatusOr<FileIdentity> IdentityOf(int descriptor) {
  WEFT_RETURN_IF_ERROR(SealedFileBytes(descriptor).status());
  struct stat facts;
  if (fstat(descriptor, &facts) != 0) return StatusFromErrno(errno, "fstat of shared memory");
  return FileIdentity{facts.st_dev, facts.st_ino};
}

}  // namespace weft
