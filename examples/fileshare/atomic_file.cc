#include "examples/fileshare/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/str_format.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

namespace fileshare {

AtomicFile::AtomicFile(const Folder& folder, std::string name, weft::Descriptor descriptor)
    : folder_(folder), name_(std::move(name)), descriptor_(std::move(descriptor)) {}

absl::StatusOr<std::unique_ptr<AtomicFile>> AtomicFile::Create(const Folder& folder,
                                                               const std::string& prefix) {
  std::string name = absl::StrFormat("%s%016x", prefix, weft::SecureRandom64());
  weft::Descriptor made(
      openat(folder.fd(), name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!made.valid()) return weft::StatusFromErrno(errno, weft::StrCat("creating ", name));
  return std::unique_ptr<AtomicFile>(new AtomicFile(folder, std::move(name), std::move(made)));
}

AtomicFile::~AtomicFile() {
  if (!committed_) unlinkat(folder_.fd(), name_.c_str(), 0);
}

absl::Status AtomicFile::WriteAt(uint64_t offset, const std::byte* from, size_t bytes) const {
  while (bytes > 0) {
    const ssize_t put = pwrite(fd(), from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return weft::StatusFromErrno(errno, "writing a file");
    from += put;
    offset += static_cast<uint64_t>(put);
    bytes -= static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Commit(const Folder& folder, const std::string& name, uint32_t mode) {
  if (fchmod(fd(), mode & kModeBits) != 0 ||
      renameat(folder_.fd(), name_.c_str(), folder.fd(), name.c_str()) != 0) {
    return weft::StatusFromErrno(errno, weft::StrCat("giving a file its name \"", name, "\""));
  }
  committed_ = true;
  return absl::OkStatus();
}

}  // namespace fileshare
