#include "transport/sockets/activation.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <utility>

#include "core/fork_guard.h"
#include "core/process_wide.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

constexpr std::string_view kScheme = "systemd:";
constexpr char kPid[] = "LISTEN_PID";
constexpr char kCount[] = "LISTEN_FDS";
constexpr char kNames[] = "LISTEN_FDNAMES";
constexpr size_t kShown = 40;  // bytes of what may be anything

absl::Status NoNumber(std::string_view variable, std::string_view value) {
  return absl::InvalidArgumentError(
      StrCat(variable, " is \"", value.substr(0, kShown), "\", and no number"));
}

std::optional<int> ParseNumber(std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) return std::nullopt;
  return number;
}

// For texts.
std::string NamesOf(const std::vector<ActivatedSocket>& sockets) {
  std::string names;
  for (const ActivatedSocket& socket : sockets) {
    names = StrCat(names, names.empty() ? "" : ", ", "\"", socket.name.substr(0, kShown), "\"");
  }
  return names;
}

// What the process was given. Only with the mutex.
struct Given {
  pid_t process = 0;  // 0: nobody has looked, or there was nothing
  std::vector<ActivatedSocket> sockets;
};

// Looks again as long as there is nothing: a program may set the variables itself.
absl::Status Look(Given& given) {
  if (given.process == getpid()) return absl::OkStatus();
  given = Given();  // a parent's
  WEFT_ASSIGN_OR_RETURN(given.sockets, ReadActivation(getpid(), std::getenv(kPid),
                                                      std::getenv(kCount), std::getenv(kNames)));
  if (given.sockets.empty()) return absl::OkStatus();
  given.process = getpid();
  for (const ActivatedSocket& socket : given.sockets) {
    ::fcntl(socket.descriptor, F_SETFD, FD_CLOEXEC);  // who takes it hears if it is none
  }
  for (const char* const variable : {kPid, kCount, kNames, "LISTEN_PIDFDID"}) unsetenv(variable);
  return absl::OkStatus();
}

}  // namespace

bool IsActivated(std::string_view address) { return address.substr(0, kScheme.size()) == kScheme; }

absl::StatusOr<std::vector<ActivatedSocket>> ReadActivation(pid_t self, const char* listen_pid,
                                                            const char* listen_fds,
                                                            const char* listen_fdnames) {
  std::vector<ActivatedSocket> sockets;
  if (listen_fds == nullptr) return sockets;
  if (listen_pid == nullptr) {
    return absl::InvalidArgumentError("LISTEN_FDS is set without LISTEN_PID");
  }
  const std::optional<int> process = ParseNumber(listen_pid);
  if (!process.has_value()) return NoNumber(kPid, listen_pid);
  if (*process != self) {
    return absl::FailedPreconditionError(
        StrCat("LISTEN_PID is ", *process, ", and this is process ", self,
               ": the sockets are that one's. Whoever stands between it and this one starts it by "
               "exec"));
  }
  const std::optional<int> count = ParseNumber(listen_fds);
  if (!count.has_value()) return NoNumber(kCount, listen_fds);
  if (*count > kMostActivated) {
    return absl::InvalidArgumentError(
        StrCat("LISTEN_FDS is ", *count, "; at most ", kMostActivated, " sockets are taken"));
  }
  sockets.resize(static_cast<size_t>(*count));
  for (int i = 0; i < *count; ++i) sockets[static_cast<size_t>(i)].descriptor = kFirstActivated + i;
  if (listen_fdnames == nullptr || *count == 0) return sockets;
  std::string_view left = listen_fdnames;
  for (size_t i = 0;; ++i) {
    const size_t end = left.find(':');
    if (i >= sockets.size() || (end == std::string_view::npos && i + 1 != sockets.size())) {
      return absl::InvalidArgumentError(
          StrCat("LISTEN_FDNAMES does not name ", *count, " sockets, which LISTEN_FDS says"));
    }
    sockets[i].name = std::string(left.substr(0, end));
    if (end == std::string_view::npos) return sockets;
    left.remove_prefix(end + 1);
  }
}

absl::StatusOr<size_t> FindActivated(const std::vector<ActivatedSocket>& sockets,
                                     std::string_view address) {
  if (sockets.empty()) {
    return absl::NotFoundError(
        "the service manager has given this process no socket (LISTEN_FDS is not set, or 0): the "
        "service is started by its .socket unit");
  }
  const std::string_view name = address.substr(kScheme.size());
  std::optional<size_t> found;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!name.empty() && sockets[i].name != name) continue;
    if (found.has_value()) {
      return absl::InvalidArgumentError(
          StrCat("the service manager has given this process more than one such socket: ",
                 NamesOf(sockets),
                 "; give each a .socket unit with a FileDescriptorName= of its "
                 "own, and listen at systemd:NAME for each"));
    }
    found = i;
  }
  if (!found.has_value()) {
    return absl::NotFoundError(
        StrCat("the service manager has given this process no socket of this name, but ",
               NamesOf(sockets), " (FileDescriptorName=)"));
  }
  if (sockets[*found].descriptor < 0) {
    return absl::NotFoundError("this socket was taken before, and a process has it once");
  }
  return *found;
}

absl::StatusOr<Descriptor> TakeActivated(std::string_view address) {
  static constinit ProcessMutex mutex;
  static constinit ProcessWide<Given> all;
  const std::string where = StrCat("listen on ", address.substr(0, kScheme.size() + kShown));
  const std::lock_guard lock(mutex);
  Given& given = all.Get();
  WEFT_RETURN_IF_ERROR(Annotate(Look(given), where));
  const absl::StatusOr<size_t> found = FindActivated(given.sockets, address);
  if (!found.ok()) return Annotate(found.status(), where);
  int& descriptor = given.sockets[*found].descriptor;
  absl::StatusOr<Descriptor> socket = DuplicateListener(descriptor);
  if (!socket.ok()) return Annotate(socket.status(), where);
  ::close(std::exchange(descriptor, -1));
  return socket;
}

}  // namespace weft
