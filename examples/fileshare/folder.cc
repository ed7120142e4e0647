#include "examples/fileshare/folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "core/status.h"
#include "core/strings.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
// O_NONBLOCK: opening a pipe does not wait for its writer.
constexpr int kFileFlags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;

// A link where a file or folder is expected gives ELOOP or ENOTDIR.
absl::Status Failed(int error, std::string_view doing, std::string_view path) {
  const std::string what = weft::StrCat(doing, " \"", path, "\"");
  if (error == ELOOP || error == ENOTDIR) {
    return absl::FailedPreconditionError(
        weft::StrCat(what, ": a link or no folder on the way; links are not followed"));
  }
  return weft::StatusFromErrno(error, what);
}

struct FolderCloser {
  void operator()(DIR* folder) const { closedir(folder); }
};

bool IsServed(const struct stat& status) {
  return S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
}

}  // namespace

FileInfo InfoOf(const struct stat& status) {
  FileInfo info;
  info.is_folder = S_ISDIR(status.st_mode);
  info.mode = status.st_mode & kModeBits;
  info.bytes = info.is_folder ? 0 : static_cast<uint64_t>(status.st_size);
  // Multiplied by odd numbers and added: a change of one of them is a change of the sum.
  const uint64_t changed_ns = static_cast<uint64_t>(status.st_mtim.tv_sec) * kNsPerSecond +
                              static_cast<uint64_t>(status.st_mtim.tv_nsec);
  info.version = (changed_ns * 0x9E3779B97F4A7C15 + status.st_ino * 0xC2B2AE3D27D4EB4F +
                  info.bytes * 0x165667B19E3779F9) |
                 1;
  return info;
}

absl::StatusOr<size_t> OpenedFile::ReadAt(uint64_t offset, std::byte* to, size_t bytes) const {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(descriptor.get(), to + done, bytes - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return weft::StatusFromErrno(errno, "reading a file");
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

absl::StatusOr<Folder> Folder::Open(const std::string& path) {
  weft::Descriptor descriptor(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.valid()) return weft::StatusFromErrno(errno, weft::StrCat("folder ", path));
  return Folder(std::move(descriptor));
}

absl::StatusOr<Folder> Folder::Walk(std::string_view path) const {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> names, SplitPath(path));
  weft::Descriptor at(openat(fd(), ".", kFolderFlags));
  for (const std::string& name : names) {
    if (!at.valid()) break;
    at = weft::Descriptor(openat(at.get(), name.c_str(), kFolderFlags));
  }
  if (!at.valid()) return Failed(errno, "opening folder", path);
  return Folder(std::move(at));
}

absl::StatusOr<Place> FindPlace(const Folder& root, std::string_view path) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> names, SplitPath(path));
  if (names.empty()) return absl::InvalidArgumentError("the shared folder itself is no place");
  const size_t parent_bytes = path.size() - names.back().size();
  const std::string_view parent = path.substr(0, parent_bytes > 0 ? parent_bytes - 1 : 0);
  WEFT_ASSIGN_OR_RETURN(Folder folder, root.Walk(parent));
  return Place{std::move(folder), std::move(names.back())};
}

absl::StatusOr<OpenedFile> Folder::OpenFile(std::string_view path) const {
  WEFT_ASSIGN_OR_RETURN(const Place place, FindPlace(*this, path));
  OpenedFile file{weft::Descriptor(openat(place.folder.fd(), place.name.c_str(), kFileFlags)), {}};
  if (!file.descriptor.valid()) return Failed(errno, "opening", path);
  struct stat status = {};
  if (fstat(file.descriptor.get(), &status) != 0) return Failed(errno, "looking at", path);
  if (!S_ISREG(status.st_mode)) {
    return absl::FailedPreconditionError(weft::StrCat("\"", path, "\" is no regular file"));
  }
  file.info = InfoOf(status);
  return file;
}

absl::StatusOr<FileInfo> Folder::Look(std::string_view path) const {
  struct stat status = {};
  if (path.empty()) {
    if (fstat(fd(), &status) != 0) return Failed(errno, "looking at", path);
    return InfoOf(status);
  }
  WEFT_ASSIGN_OR_RETURN(const Place place, FindPlace(*this, path));
  if (fstatat(place.folder.fd(), place.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return Failed(errno, "looking at", path);
  }
  if (!IsServed(status)) {
    return absl::FailedPreconditionError(
        weft::StrCat("\"", path, "\" is neither a file nor a folder"));
  }
  return InfoOf(status);
}

absl::Status Folder::MakeFolder(std::string_view path, uint32_t mode) const {
  WEFT_ASSIGN_OR_RETURN(const Place place, FindPlace(*this, path));
  if (mkdirat(place.folder.fd(), place.name.c_str(), 0700) != 0 && errno != EEXIST) {
    return Failed(errno, "making folder", path);
  }
  const weft::Descriptor made(openat(place.folder.fd(), place.name.c_str(), kFolderFlags));
  if (!made.valid()) return Failed(errno, "opening folder", path);
  if (fchmod(made.get(), mode & kModeBits) != 0) return Failed(errno, "setting the mode of", path);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Entry>> Folder::List(const std::string& after, size_t limit) const {
  // A description of its own: the position in the folder belongs to it.
  weft::Descriptor again(openat(fd(), ".", kFolderFlags));
  if (!again.valid()) return Failed(errno, "opening", ".");
  const std::unique_ptr<DIR, FolderCloser> folder(fdopendir(again.get()));
  if (folder == nullptr) return Failed(errno, "listing", ".");
  (void)again.Release();
  std::map<std::string, FileInfo> found;
  errno = 0;
  while (const dirent* entry = readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    const bool has_room = found.size() < limit || name < found.rbegin()->first;
    struct stat status = {};
    // What has gone meanwhile is not there.
    if (IsName(name) && name > after && has_room &&
        fstatat(fd(), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 && IsServed(status)) {
      found.emplace(name, InfoOf(status));
      if (found.size() > limit) found.erase(std::prev(found.end()));
    }
    errno = 0;
  }
  if (errno != 0) return Failed(errno, "listing", ".");
  std::vector<Entry> entries;
  for (auto& [name, info] : found) entries.push_back({name, info});
  return entries;
}

}  // namespace fileshare
