// A file that appears whole, or not at all: it is written under another name and renamed.
//
//   Create() -> WriteAt() as often as needed -> Commit()     the destructor removes what was not
//                                                            committed
//
// Threads: WriteAt() from any, several at once; the rest from one, after the last WriteAt().
// Lifetime: the folder of the other name outlives it. Errors: as the system says. A machine that
//   loses its power may lose a file that was committed shortly before: nothing is synced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "examples/fileshare/folder.h"
#include "transport/descriptor.h"

namespace fileshare {

class AtomicFile {
 public:
  // Under a name of its own in `folder`, that begins with `prefix`, for the owner only.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const Folder& folder,
                                                            const std::string& prefix);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status WriteAt(uint64_t offset, const std::byte* from, size_t bytes) const;

  // Gives it its mode and its name in `folder`, on the same file system; a file of that name is
  // replaced, at once for everybody who looks.
  absl::Status Commit(const Folder& folder, const std::string& name, uint32_t mode);

  int fd() const { return descriptor_.get(); }

 private:
  AtomicFile(const Folder& folder, std::string name, weft::Descriptor descriptor);

  const Folder& folder_;
  const std::string name_;
  const weft::Descriptor descriptor_;
  bool committed_ = false;
};

}  // namespace fileshare
