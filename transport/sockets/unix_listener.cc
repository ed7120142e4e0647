#include "transport/sockets/unix_listener.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cerrno>

#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/address.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// Starting takes a millisecond; a holder that keeps the folder locked for two seconds is no
// starting server of ours.
constexpr int kLockAttempts = 200;
constexpr int kLockRetryMs = 10;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 ? "/" : path.substr(0, slash);
}

// Holds the folder's lock until the descriptor is closed.
absl::StatusOr<Descriptor> LockFolder(const std::string& folder) {
  Descriptor lock(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return StatusFromErrno(errno, StrCat("open the folder ", folder));
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    if (::flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
    if (errno != EWOULDBLOCK && errno != EINTR) break;
    ::poll(nullptr, 0, kLockRetryMs);
  }
  return StatusFromErrno(errno,
                         StrCat("lock the folder ", folder, " while its socket is replaced"));
}

// Whether a process has the socket open: only then is a connection not refused.
bool HasServer(const KernelAddress& address) {
  const Descriptor probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!probe.valid()) return true;  // unknown: never remove a file on a guess
  return ::connect(probe.get(), address.get(), address.length) == 0 || errno != ECONNREFUSED;
}

// OK: the file at `path` is a socket without a server.
absl::Status CheckStale(const std::string& path, const KernelAddress& address) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) {
    return StatusFromErrno(errno, StrCat("look at ", path));
  }
  if (!S_ISSOCK(facts.st_mode)) {
    return absl::AlreadyExistsError(StrCat(
        "listen on unix:", path, ": a file that is not a socket has this name; it is left alone"));
  }
  if (HasServer(address)) {
    return absl::AlreadyExistsError(
        StrCat("listen on unix:", path, ": another server listens there"));
  }
  return absl::OkStatus();
}

absl::Status BindReplacingStale(int fd, const std::string& path, const KernelAddress& address) {
  if (::bind(fd, address.get(), address.length) == 0) return absl::OkStatus();
  if (errno == EADDRINUSE) {
    WEFT_RETURN_IF_ERROR(CheckStale(path, address));
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
      return StatusFromErrno(errno, StrCat("remove the socket that a dead server left at ", path));
    }
    if (::bind(fd, address.get(), address.length) == 0) return absl::OkStatus();
  }
  return StatusFromErrno(errno, StrCat("listen on unix:", path));
}

}  // namespace

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Open(const std::string& path) {
  ServerAddress parsed;
  parsed.kind = ServerAddress::Kind::kUnix;
  parsed.path = path;
  WEFT_ASSIGN_OR_RETURN(const std::vector<KernelAddress> addresses, Resolve(parsed));

  WEFT_ASSIGN_OR_RETURN(Descriptor descriptor, OpenStream(addresses[0]));
  WEFT_ASSIGN_OR_RETURN(const Descriptor lock, LockFolder(FolderOf(path)));
  WEFT_RETURN_IF_ERROR(BindReplacingStale(descriptor.get(), path, addresses[0]));
  struct stat facts {};
  if (::listen(descriptor.get(), kListenBacklog) != 0 || ::stat(path.c_str(), &facts) != 0) {
    const absl::Status status = StatusFromErrno(errno, StrCat("listen on unix:", path));
    ::unlink(path.c_str());
    return status;
  }
  return std::unique_ptr<UnixListener>(
      new UnixListener(path, std::move(descriptor), facts.st_dev, facts.st_ino));
}

absl::StatusOr<std::unique_ptr<UnixListener>> UnixListener::Adopt(const std::string& path,
                                                                  Descriptor descriptor) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0) return StatusFromErrno(errno, StrCat("look at ", path));
  if (!S_ISSOCK(facts.st_mode)) {
    return absl::InvalidArgumentError(
        StrCat("listen on unix:", path, " with another process's socket: this file is no socket"));
  }
  std::unique_ptr<UnixListener> listener(
      new UnixListener(path, std::move(descriptor), facts.st_dev, facts.st_ino));
  listener->LeaveFile();
  return listener;
}

UnixListener::~UnixListener() {
  if (leaves_file_) return;
  // Without the lock (it is busy) the check is still right but for a race with a starting server
  // that took over a socket which is still open here: it would have found this server alive.
  const absl::StatusOr<Descriptor> lock = LockFolder(FolderOf(path_));
  struct stat facts {};
  if (::lstat(path_.c_str(), &facts) != 0) return;
  if (facts.st_dev == device_ && facts.st_ino == inode_) ::unlink(path_.c_str());
}

}  // namespace weft
