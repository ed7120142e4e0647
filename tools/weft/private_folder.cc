#include "tools/weft/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "core/status.h"
#include "core/strings.h"
#include "transport/read_file.h"

namespace weft::tools {
namespace {

constexpr mode_t kWritableByOthers = S_IWGRP | S_IWOTH;

// errno of what has failed; 0: all is written, and on the disk.
int WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return ::fsync(file) == 0 ? 0 : errno;
}

}  // namespace

absl::StatusOr<PrivateFolder> PrivateFolder::Open(const std::string& path) {
  if (::mkdir(path.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return StatusFromErrno(errno, StrCat("make the folder ", path));
  }
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat found;
  if (!descriptor.valid() || ::fstat(descriptor.get(), &found) != 0) {
    return StatusFromErrno(errno, StrCat("open the folder ", path));
  }
  if (found.st_uid != ::geteuid() || (found.st_mode & kWritableByOthers) != 0) {
    return absl::FailedPreconditionError(
        StrCat(path,
               " belongs to, or can be written by, others: keys are not safe there. "
               "Name a folder of your own, or one that is not there yet"));
  }
  return PrivateFolder(path, std::move(descriptor));
}

absl::Status PrivateFolder::Failed(const char* what, const std::string& name) const {
  return StatusFromErrno(errno, StrCat(what, " ", path_, "/", name));
}

bool PrivateFolder::Has(const std::string& name) const {
  struct stat found;
  return ::fstatat(descriptor_.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) == 0;
}

absl::StatusOr<std::string> PrivateFolder::Read(const std::string& name) const {
  Descriptor file(::openat(descriptor_.get(), name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return Failed("open", name);
  WEFT_ASSIGN_OR_RETURN(std::string text,
                        ReadFile(file.get(), kMaxFileBytes + 1, StrCat("read ", path_, "/", name)));
  if (text.size() > kMaxFileBytes) {
    return absl::InvalidArgumentError(StrCat(path_, "/", name, " is too large for what it is"));
  }
  return text;
}

absl::Status PrivateFolder::Write(const std::string& name, mode_t mode,
                                  std::string_view text) const {
  Descriptor file(::openat(descriptor_.get(), name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!file.valid()) return Failed("make", name);
  if (const int error = WriteAll(file.get(), text); error != 0) {
    ::unlinkat(descriptor_.get(), name.c_str(), 0);
    return StatusFromErrno(error, StrCat("write ", path_, "/", name));
  }
  return absl::OkStatus();
}

absl::Status PrivateFolder::Replace(const std::string& name, mode_t mode,
                                    std::string_view text) const {
  const std::string fresh = name + ".new";
  ::unlinkat(descriptor_.get(), fresh.c_str(), 0);  // of a run that was ended meanwhile
  WEFT_RETURN_IF_ERROR(Write(fresh, mode, text));
  if (::renameat(descriptor_.get(), fresh.c_str(), descriptor_.get(), name.c_str()) == 0) {
    return absl::OkStatus();
  }
  return Failed("replace", name);
}

}  // namespace weft::tools
