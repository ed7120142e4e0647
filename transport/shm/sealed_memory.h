// Anonymous memory of fixed size (a memfd) that two processes map: made by one, opened by the other
// through a descriptor that it was handed. It has no name: nothing is left when both are gone,
// however they went.
//
// It is sealed: nobody can make the file shorter, which would turn an access of the other process
// into a SIGBUS. Who opens one checks the seals, then the size, before mapping it.
//
// Threads: as a plain value. Lifetime: unmapped by the destructor.
// Errors: INVALID_ARGUMENT for a descriptor that is not such a file; it came from a peer.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft {

class SealedMemory {
 public:
  SealedMemory() = default;
  // Filled with zeros. `name` is seen in /proc/PID/maps.
  static absl::StatusOr<SealedMemory> Create(const char* name, size_t bytes);
  // Borrows the descriptor.
  static absl::StatusOr<SealedMemory> Open(int descriptor, size_t bytes);

  SealedMemory(SealedMemory&& other) noexcept { *this = std::move(other); }
  SealedMemory& operator=(SealedMemory&& other) noexcept;
  ~SealedMemory() { Reset(); }

  std::byte* data() const { return data_; }
  // Of what was created here; -1: opened, or given away.
  int descriptor() const { return descriptor_; }
  // The caller closes it from now on. The mapping stays.
  int ReleaseDescriptor() { return std::exchange(descriptor_, -1); }

  void Reset();

 private:
  absl::Status Map(int descriptor, size_t bytes);

  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int descriptor_ = -1;
  bool is_own_ = false;  // created here, and counted
};

// Tells whether two descriptors are of one file. Only of sealed files in memory.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
absl::StatusOr<FileIdentity> IdentityOf(int descriptor);

}  // namespace weft
