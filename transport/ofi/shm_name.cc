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

constexpr std::string_view kPrefix = "weft-";
constexpr size_t kDigits = 16;
constexpr size_t kDomainBytes = kPrefix.size() + kDigits;
// A file younger than this may belong to an owner that has not locked it yet.
constexpr int64_t kUnclaimedSeconds = 10;

bool IsDomainName(std::string_view name) {
  return name.size() == kDomainBytes && name.substr(0, kPrefix.size()) == kPrefix &&
         name.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string_view::npos;
}

// As shm_open(3) wants it.
std::string PathOf(std::string_view name) { return StrCat("/", name); }

std::vector<std::string> ListShmFiles(std::string_view prefix) {
  std::vector<std::string> names;
  DIR* folder = opendir("/dev/shm");
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string_view name = entry->d_name;
    if (name.substr(0, prefix.size()) == prefix) names.emplace_back(name);
  }
  closedir(folder);
  return names;
}

bool RemoveIfOwnerIsGone(const std::string& domain, int64_t min_age_s) {
  const int fd = shm_open(PathOf(domain).c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return false;
  struct stat status;
  const bool old_enough =
      fstat(fd, &status) == 0 && std::time(nullptr) - status.st_ctime >= min_age_s;
  const bool gone = old_enough && flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (gone) {
    // The domain's own file last: it is what the others are found by.
    for (const std::string& name : ListShmFiles(StrCat(domain, "-"))) RemoveShmFile(name);
    RemoveShmFile(domain);
  }
  close(fd);
  return gone;
}

bool Exists(const std::string& name, int64_t min_age_s) {
  struct stat status;
  return stat(StrCat("/dev/shm/", name).c_str(), &status) == 0 &&
         std::time(nullptr) - status.st_ctime >= min_age_s;
}

// An endpoint whose domain is gone: its owner died while another process removed its files.
bool IsOrphan(const std::string& name) {
  const std::string domain = name.substr(0, kDomainBytes);
  return IsDomainName(domain) && name.size() > kDomainBytes && name[kDomainBytes] == '-' &&
         Exists(name, kUnclaimedSeconds) && !Exists(domain, 0);
}

}  // namespace

std::string NewShmDomainName() {
  return StrCat(kPrefix, absl::StrFormat("%016x", SecureRandom64()));
}

absl::Status CheckShmDomainName(std::string_view name) {
  if (IsDomainName(name)) return absl::OkStatus();
  return absl::InvalidArgumentError("the peer's shm address is not one of ours");
}

std::string ShmEndpointName(std::string_view domain, uint64_t nonce, ShmRole role) {
  return StrCat(domain, "-", absl::StrFormat("%016x", nonce),
                std::string(1, static_cast<char>(role)));
}

absl::Status CheckShmFileVisible(const std::string& name) {
  const int fd = shm_open(PathOf(name).c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd >= 0) {
    close(fd);
    return absl::OkStatus();
  }
  if (errno == ENOENT) {
    return absl::UnavailableError(
        absl::StrCat("the peer's /dev/shm/", name,
                     " is not visible here: it ended, or runs in a container of its own"));
  }
  return StatusFromErrno(errno, absl::StrCat("opening the peer's /dev/shm/", name));
}

void RemoveShmFile(const std::string& name) { shm_unlink(PathOf(name).c_str()); }

absl::StatusOr<std::unique_ptr<ShmOwnership>> ShmOwnership::Create(const std::string& domain,
                                                                   size_t bytes) {
  const std::string what = absl::StrCat("creating /dev/shm/", domain);
  const int fd =
      shm_open(PathOf(domain).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (fd < 0) return StatusFromErrno(errno, what);
  std::unique_ptr<ShmOwnership> owner(new ShmOwnership(domain, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    return StatusFromErrno(errno, what);
  }
  return owner;
}

ShmOwnership::~ShmOwnership() {
  RemoveShmFile(domain_);
  close(fd_);
}

bool RemoveShmFilesOf(const std::string& domain) {
  return IsDomainName(domain) && RemoveIfOwnerIsGone(domain, 0);
}

int RemoveShmFilesOfDeadOwners() {
  int removed = 0;
  for (const std::string& name : ListShmFiles(kPrefix)) {
    if (IsDomainName(name)) {
      removed += RemoveIfOwnerIsGone(name, kUnclaimedSeconds);
    } else if (IsOrphan(name)) {
      RemoveShmFile(name);
    }
  }
  return removed;
}

}  // namespace weft
