#include "embed/rocksdb/served_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <set>
#include <utility>

#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "embed/rocksdb/file_limits.h"

namespace weft::embed {
namespace {

// What the system says, in the words of file.proto.
absl::Status FileError(int error, std::string_view what) {
  const std::string text(StatusFromErrno(error, what).message());
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EEXIST:
      return absl::AlreadyExistsError(text);
    case ENOTEMPTY:
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::OutOfRangeError(text);
    case EOPNOTSUPP:
    case ENOSYS:
    case EXDEV:
    case EMLINK:
      return absl::UnimplementedError(text);
    case EPERM:
    case EACCES:
    case EROFS:
    case ETXTBSY:
    case ELOOP:
      return absl::PermissionDeniedError(text);
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::DataLossError(text);
  }
}

std::string Quoted(std::string_view name) { return StrCat("\"", name, "\""); }

absl::Status NoName(std::string_view name, std::string_view why) {
  constexpr size_t kShown = 64;
  return absl::InvalidArgumentError(StrCat(Quoted(name.substr(0, kShown)), " is no name: ", why));
}

absl::StatusOr<std::vector<std::string>> PartsOf(std::string_view name) {
  if (name.size() > kMaxNameBytes) {
    return NoName(name, StrCat("more than ", kMaxNameBytes, " bytes"));
  }
  if (name.find('\0') != std::string_view::npos) return NoName(name, "a byte of it is 0");
  std::vector<std::string> parts;
  while (!name.empty()) {
    const size_t slash = name.find('/');
    const std::string_view part = name.substr(0, slash);
    if (part.empty() || part == "." || part == "..") {
      return NoName(name, "parts are neither empty nor . nor ..");
    }
    parts.emplace_back(part);
    if (parts.size() > kMaxNameParts) {
      return NoName(name, StrCat("more than ", kMaxNameParts, " parts"));
    }
    if (slash == std::string_view::npos) break;
    name.remove_prefix(slash + 1);
    if (name.empty()) return NoName(name, "it ends with a slash");
  }
  return parts;
}

constexpr int kFolderFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

absl::StatusOr<Descriptor> Descend(const Descriptor& root, const std::vector<std::string>& parts,
                                   size_t count) {
  Descriptor folder(::openat(root.get(), ".", kFolderFlags));
  if (!folder.valid()) return FileError(errno, "open the folder that is served");
  for (size_t i = 0; i < count; ++i) {
    Descriptor next(::openat(folder.get(), parts[i].c_str(), kFolderFlags));
    if (!next.valid()) {
      const int error = errno;
      struct stat status = {};
      // With O_DIRECTORY a link is ENOTDIR.
      const bool is_link =
          error == ENOTDIR &&
          ::fstatat(folder.get(), parts[i].c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
          S_ISLNK(status.st_mode);
      return FileError(is_link ? ELOOP : error, StrCat("open the folder ", Quoted(parts[i])));
    }
    folder = std::move(next);
  }
  return folder;
}

ServedFolder::Facts FactsFrom(const struct stat& status) {
  ServedFolder::Facts facts;
  facts.bytes = static_cast<uint64_t>(status.st_size);
  facts.modified_s = static_cast<uint64_t>(status.st_mtim.tv_sec);
  facts.is_folder = S_ISDIR(status.st_mode);
  facts.links = status.st_nlink;
  facts.identity = status.st_ino ^ (uint64_t{status.st_dev} << 40);
  return facts;
}

int FlagsOf(ServedFolder::Mode mode) {
  switch (mode) {
    case ServedFolder::Mode::kRead:
      return O_RDONLY;
    case ServedFolder::Mode::kWriteNew:
      return O_RDWR | O_CREAT | O_TRUNC;
    case ServedFolder::Mode::kWriteExisting:
      return O_RDWR;
    case ServedFolder::Mode::kLock:
      return O_RDWR | O_CREAT;
  }
  return O_RDONLY;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServedFolder>> ServedFolder::Open(const std::string& path,
                                                                 bool read_only) {
  Descriptor root(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root.valid()) return StatusFromErrno(errno, StrCat("open the folder ", path));
  // Readers share it. Nobody waits: a killed server may still have a system call to end, and
  // whoever starts its successor starts it again.
  if (::flock(root.get(), (read_only ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(
        StrCat(path, " is served by another process, or one that is still ending (flock)"));
  }
  struct stat status = {};
  if (::fstat(root.get(), &status) != 0) return StatusFromErrno(errno, StrCat("stat ", path));
  std::string boot;
  std::ifstream boot_file("/proc/sys/kernel/random/boot_id");
  std::getline(boot_file, boot);
  const uint64_t epoch = std::hash<std::string>()(StrCat(
      boot, " ", major(status.st_dev), ":", minor(status.st_dev), " ", uint64_t{status.st_ino}));
  struct statfs medium = {};
  const bool in_memory = ::fstatfs(root.get(), &medium) == 0 && medium.f_type == TMPFS_MAGIC;
  return std::unique_ptr<ServedFolder>(
      new ServedFolder(std::move(root), read_only, in_memory, epoch));
}

// --- names ---------------------------------------------------------------------------------------

absl::StatusOr<Descriptor> ServedFolder::OpenFolder(std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOf(name));
  return Descend(root_, parts, parts.size());
}

absl::StatusOr<ServedFolder::Place> ServedFolder::PlaceOf(std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(std::vector<std::string> parts, PartsOf(name));
  if (parts.empty()) return NoName(name, "it is empty");
  WEFT_ASSIGN_OR_RETURN(Descriptor folder, Descend(root_, parts, parts.size() - 1));
  return Place{std::move(folder), std::move(parts.back())};
}

absl::Status ServedFolder::CheckWritable(std::string_view name) const {
  if (!read_only_) return absl::OkStatus();
  return absl::PermissionDeniedError(
      StrCat(Quoted(name), ": the folder is served for reading only"));
}

absl::StatusOr<Descriptor> ServedFolder::OpenFile(std::string_view name, Mode mode) {
  if (mode != Mode::kRead) WEFT_RETURN_IF_ERROR(CheckWritable(name));
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(name));
  // Without O_NONBLOCK the opening of a FIFO would wait.
  const int flags = FlagsOf(mode) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  Descriptor file(::openat(place.folder.get(), place.last.c_str(), flags, 0644));
  if (!file.valid()) return FileError(errno, StrCat("open ", Quoted(name)));
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return FileError(errno, StrCat("stat ", Quoted(name)));
  if (!S_ISREG(status.st_mode)) {
    return absl::InvalidArgumentError(StrCat(Quoted(name), " is no regular file"));
  }
  return file;
}

absl::StatusOr<ServedFolder::Facts> ServedFolder::Stat(std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<std::string> parts, PartsOf(name));
  const size_t depth = parts.empty() ? 0 : parts.size() - 1;
  WEFT_ASSIGN_OR_RETURN(const Descriptor folder, Descend(root_, parts, depth));
  const std::string last = parts.empty() ? "." : parts.back();
  struct stat status = {};
  if (::fstatat(folder.get(), last.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    return FileError(errno, StrCat("stat ", Quoted(name)));
  }
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    return absl::PermissionDeniedError(StrCat(Quoted(name), " is neither a file nor a folder"));
  }
  Facts facts = FactsFrom(status);
  struct statvfs medium = {};
  if (::fstatvfs(folder.get(), &medium) == 0) facts.free_bytes = medium.f_bavail * medium.f_frsize;
  return facts;
}

absl::StatusOr<ServedFolder::Listing> ServedFolder::List(std::string_view name,
                                                         std::string_view after) {
  WEFT_ASSIGN_OR_RETURN(Descriptor folder, OpenFolder(name));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(folder.get()), ::closedir);
  if (listing == nullptr) return FileError(errno, StrCat("list ", Quoted(name)));
  folder.Release();
  std::set<std::string> names;
  size_t bytes = 0;
  std::optional<std::string> end;  // the least name that has no room; no greater one has any
  errno = 0;
  while (const dirent* const entry = ::readdir(listing.get())) {
    const std::string_view found = entry->d_name;
    const bool is_wanted = found != "." && found != ".." && (after.empty() || found > after) &&
                           (!end.has_value() || found < *end);
    if (is_wanted && names.emplace(found).second) bytes += found.size();
    while (names.size() > kMaxListedNames || bytes > kMaxListedBytes) {
      const auto last = std::prev(names.end());
      end = *last;
      bytes -= last->size();
      names.erase(last);
    }
    errno = 0;
  }
  if (errno != 0) return FileError(errno, StrCat("list ", Quoted(name)));
  Listing result;
  result.has_more = end.has_value();
  result.names.assign(names.begin(), names.end());
  return result;
}

absl::Status ServedFolder::Remove(std::string_view name) {
  WEFT_RETURN_IF_ERROR(CheckWritable(name));
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(name));
  if (::unlinkat(place.folder.get(), place.last.c_str(), 0) == 0) return absl::OkStatus();
  return FileError(errno, StrCat("remove ", Quoted(name)));
}

absl::Status ServedFolder::MakeFolder(std::string_view name) {
  WEFT_RETURN_IF_ERROR(CheckWritable(name));
  if (name.empty()) return absl::AlreadyExistsError("the folder that is served");
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(name));
  if (::mkdirat(place.folder.get(), place.last.c_str(), 0755) == 0) return absl::OkStatus();
  return FileError(errno, StrCat("make the folder ", Quoted(name)));
}

absl::Status ServedFolder::RemoveFolder(std::string_view name) {
  WEFT_RETURN_IF_ERROR(CheckWritable(name));
  WEFT_ASSIGN_OR_RETURN(const Place place, PlaceOf(name));
  if (::unlinkat(place.folder.get(), place.last.c_str(), AT_REMOVEDIR) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, StrCat("remove the folder ", Quoted(name)));
}

absl::Status ServedFolder::Rename(std::string_view from, std::string_view to) {
  WEFT_RETURN_IF_ERROR(CheckWritable(from));
  WEFT_ASSIGN_OR_RETURN(const Place source, PlaceOf(from));
  WEFT_ASSIGN_OR_RETURN(const Place target, PlaceOf(to));
  if (::renameat(source.folder.get(), source.last.c_str(), target.folder.get(),
                 target.last.c_str()) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, StrCat("rename ", Quoted(from), " to ", Quoted(to)));
}

absl::Status ServedFolder::Link(std::string_view from, std::string_view to) {
  WEFT_RETURN_IF_ERROR(CheckWritable(from));
  WEFT_ASSIGN_OR_RETURN(const Place source, PlaceOf(from));
  WEFT_ASSIGN_OR_RETURN(const Place target, PlaceOf(to));
  if (::linkat(source.folder.get(), source.last.c_str(), target.folder.get(), target.last.c_str(),
               0) == 0) {
    return absl::OkStatus();
  }
  return FileError(errno, StrCat("link ", Quoted(from), " as ", Quoted(to)));
}

absl::Status ServedFolder::Truncate(std::string_view name, uint64_t bytes) {
  if (bytes > uint64_t{INT64_MAX}) return absl::InvalidArgumentError("no file is so large");
  WEFT_ASSIGN_OR_RETURN(const Descriptor file, OpenFile(name, Mode::kWriteExisting));
  if (::ftruncate(file.get(), static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
  return FileError(errno, StrCat("truncate ", Quoted(name), " to ", bytes, " bytes"));
}

absl::Status ServedFolder::SyncFolder(std::string_view name) {
  WEFT_ASSIGN_OR_RETURN(const Descriptor folder, OpenFolder(name));
  if (::fsync(folder.get()) == 0) return absl::OkStatus();
  const int error = errno;
  epoch_.store(SecureRandom64(), std::memory_order_release);
  return FileError(error, StrCat("sync the folder ", Quoted(name)));
}

// --- files ---------------------------------------------------------------------------------------

absl::StatusOr<ServedFolder::Facts> ServedFolder::FactsOf(const Descriptor& file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return FileError(errno, "stat a file that is open");
  return FactsFrom(status);
}

absl::StatusOr<size_t> ServedFolder::Read(const Descriptor& file, uint64_t offset,
                                          MutableByteSpan into) {
  if (offset > uint64_t{INT64_MAX}) return 0;
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t got = ::pread(file.get(), into.data() + done, into.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return FileError(errno, StrCat("read ", into.size(), " bytes at ", offset));
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  return done;
}

bool ServedFolder::ReadCached(const Descriptor& file, uint64_t offset, MutableByteSpan into) {
  if (offset > uint64_t{INT64_MAX}) return false;
  const iovec part = {into.data(), into.size()};
  return ::preadv2(file.get(), &part, 1, static_cast<off_t>(offset), RWF_NOWAIT) ==
         static_cast<ssize_t>(into.size());
}

absl::Status ServedFolder::WriteAt(const Descriptor& file, uint64_t offset, ByteSpan from) {
  WEFT_ASSIGN_OR_RETURN(const Facts facts, FactsOf(file));
  if (offset > facts.bytes) {
    return absl::DataLossError(StrCat("the file ends at ", facts.bytes, ", before ", offset,
                                      ", where bytes were to be appended: some that were written "
                                      "are lost"));
  }
  while (!from.empty()) {
    const ssize_t put = ::pwrite(file.get(), from.data(), from.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError(errno, StrCat("write ", from.size(), " bytes at ", offset));
    from = from.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return absl::OkStatus();
}

absl::Status ServedFolder::Sync(const Descriptor& file) {
  if (::fdatasync(file.get()) == 0) return absl::OkStatus();
  const int error = errno;
  if (error != EROFS && error != EINVAL) epoch_.store(SecureRandom64(), std::memory_order_release);
  return FileError(error, "sync");
}

}  // namespace weft::embed
