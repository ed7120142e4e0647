#include "transport/ofi/shm_name.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft {
namespace {

// With this scheme libfabric takes the name as it is; with its other one it appends user and count.
constexpr std::string_view kScheme = "fi_ns://";
constexpr std::string_view kPrefix = "weft-";
constexpr size_t kRandomDigits = 16;
// A file younger than this may belong to an owner that has not locked it yet.
constexpr int64_t kUnclaimedSeconds = 10;

constexpr std::string_view kRegionsSuffix = ".regions";

bool IsEndpointName(std::string_view name) {
  if (name.size() != kPrefix.size() + kRandomDigits || name.substr(0, kPrefix.size()) != kPrefix) {
    return false;
  }
  return name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

bool IsFileName(std::string_view name) {
  const size_t bytes = kPrefix.size() + kRandomDigits;
  return IsEndpointName(name.substr(0, bytes)) &&
         (name.size() == bytes || name.substr(bytes) == kRegionsSuffix);
}

// The name for shm_open(3).
std::string FileOf(std::string_view address) { return StrCat("/", address.substr(kScheme.size())); }

bool RemoveIfOwnerIsGone(const std::string& file, int64_t min_age_s) {
  const int fd = shm_open(file.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return false;
  struct stat status;
  const bool old_enough =
      fstat(fd, &status) == 0 && std::time(nullptr) - status.st_ctime >= min_age_s;
  const bool gone = old_enough && flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (gone) shm_unlink(file.c_str());
  close(fd);
  return gone;
}

}  // namespace

std::string NewShmAddress() {
  return StrCat(kScheme, kPrefix, absl::StrFormat("%016x", SecureRandom64()));
}

absl::Status CheckShmAddress(std::string_view address) {
  if (address.substr(0, kScheme.size()) == kScheme &&
      IsEndpointName(address.substr(kScheme.size()))) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("the peer's shm address is not one of ours");
}

std::string ShmRegionsFile(std::string_view address) {
  return StrCat(FileOf(address), kRegionsSuffix);
}

absl::Status CheckShmVisible(const std::string& address) {
  const std::string file = FileOf(address);
  const int fd = shm_open(file.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd >= 0) {
    close(fd);
    return absl::OkStatus();
  }
  if (errno == ENOENT) {
    return absl::UnavailableError(
        absl::StrCat("the peer's /dev/shm", file,
                     " is not visible here: it ended, or runs in a container of its own"));
  }
  return StatusFromErrno(errno, absl::StrCat("opening the peer's /dev/shm", file));
}

absl::StatusOr<std::unique_ptr<ShmOwnership>> ShmOwnership::Claim(const std::string& address) {
  return ClaimFile(FileOf(address));
}

absl::StatusOr<std::unique_ptr<ShmOwnership>> ShmOwnership::ClaimFile(std::string file) {
  const int fd = shm_open(file.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return StatusFromErrno(errno, absl::StrCat("opening our own /dev/shm", file));
  struct stat status;
  const bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (!locked || fstat(fd, &status) != 0 || status.st_nlink == 0) {
    const int error = locked ? ENOENT : errno;
    close(fd);
    return StatusFromErrno(error, absl::StrCat("locking our own /dev/shm", file));
  }
  return std::unique_ptr<ShmOwnership>(new ShmOwnership(std::move(file), fd));
}

ShmOwnership::~ShmOwnership() {
  shm_unlink(file_.c_str());
  close(fd_);
}

bool RemoveShmFilesOf(const std::string& address) {
  if (!CheckShmAddress(address).ok() || !RemoveIfOwnerIsGone(FileOf(address), 0)) return false;
  RemoveIfOwnerIsGone(ShmRegionsFile(address), 0);
  return true;
}

int RemoveShmFilesOfDeadOwners() {
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return 0;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(folder)) {
    if (IsFileName(entry->d_name)) found.push_back(absl::StrCat("/", entry->d_name));
  }
  closedir(folder);
  int removed = 0;
  for (const std::string& file : found) removed += RemoveIfOwnerIsGone(file, kUnclaimedSeconds);
  return removed;
}

}  // namespace weft
