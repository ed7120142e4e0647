#include "transport/handover_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/fork_guard.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor_message.h"
#include "transport/sockets/socket.h"

namespace weft {
namespace {

// Successors that wait to be told that they have to wait: two at once are a mistake already.
constexpr int kBacklog = 8;
// The peer reads each message as it comes; one that stands still for so long has gone wrong.
constexpr int kSendMs = 1000;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path[0] != '/' || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(StrCat("the handover's path \"", path,
                                             "\": an absolute path of at most ",
                                             sizeof(address.sun_path) - 1, " bytes is needed"));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<Descriptor> OpenSocket() {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return StatusFromErrno(errno, "open a socket for the handover");
  // With one of a child that was forked the next process would wait for an answer.
  OwnDescriptor(socket.get());
  return socket;
}

// OK: the process at the other end is this user's.
absl::Status CheckUser(int socket) {
  // Whom the kernel does not know is of no user, as it has it of a socket over a network.
  constexpr ucred kUnknown = {0, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  const ucred peer = PeerCredentials(socket).value_or(kUnknown);
  if (peer.uid == ::geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(StrCat("process ", peer.pid, " of user ", peer.uid,
                                            " is at the other end of the handover; this process "
                                            "is of user ",
                                            ::geteuid(), ", and has to do with that one alone"));
}

// Waits for `events` of the socket. Signals make it no longer.
absl::Status Await(int socket, short events, int timeout_ms, const char* what) {
  const Clock& clock = Clock::Real();
  const uint64_t wait_ns = timeout_ms < 0 ? kNever : static_cast<uint64_t>(timeout_ms) * kNsPerMs;
  const uint64_t begin_ns = clock.NowNs();
  pollfd waits{socket, events, 0};
  int left_ms = timeout_ms;
  while (true) {
    const int ready = ::poll(&waits, 1, left_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, what);
    const uint64_t waited_ns = clock.NowNs() - begin_ns;
    if (waited_ns >= wait_ns) {
      return absl::DeadlineExceededError(StrCat(what, ": nothing within ", timeout_ms,
                                                " ms from process ", PeerProcessId(socket)));
    }
    const uint64_t left_ns = wait_ns - waited_ns;
    if (timeout_ms > 0) left_ms = static_cast<int>((left_ns + kNsPerMs - 1) / kNsPerMs);
  }
}

absl::Status PeerIsGone() {
  return absl::UnavailableError("the process at the other end of the handover is gone");
}

// Whatever this user's process sends.
bool TakeAsOwn(const Descriptor& descriptor) {
  OwnDescriptor(descriptor.get());
  return true;
}

}  // namespace

// Nobody gets in before the permissions are right: until then it does not listen.
absl::StatusOr<HandoverListener> PrepareForSuccessor(const std::string& path) {
  WEFT_RETURN_IF_ERROR(AddressOf(path).status());
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) == 0 && !S_ISSOCK(facts.st_mode)) {
    return absl::AlreadyExistsError(StrCat("offer a handover at ", path,
                                           ": a file that is not a socket has this name; it is "
                                           "left alone"));
  }
  const std::string made = StrCat(path, ".", ::getpid());
  WEFT_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(made));
  WEFT_ASSIGN_OR_RETURN(Descriptor socket, OpenSocket());
  ::unlink(made.c_str());  // of a process of this number that was killed
  const bool listens =
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 &&
      ::chmod(made.c_str(), S_IRUSR | S_IWUSR) == 0 && ::listen(socket.get(), kBacklog) == 0 &&
      ::lstat(made.c_str(), &facts) == 0;
  if (listens) return HandoverListener{std::move(socket), path, made, facts.st_dev, facts.st_ino};
  const absl::Status status = StatusFromErrno(errno, StrCat("offer a handover at ", path));
  ::unlink(made.c_str());
  return status;
}

absl::Status TakePath(HandoverListener* listener) {
  if (::rename(listener->made.c_str(), listener->path.c_str()) != 0) {
    return StatusFromErrno(errno, StrCat("offer a handover at ", listener->path));
  }
  listener->made.clear();
  return absl::OkStatus();
}

absl::StatusOr<HandoverListener> ListenForSuccessor(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(HandoverListener listener, PrepareForSuccessor(path));
  const absl::Status taken = TakePath(&listener);
  if (!taken.ok()) RemoveHandoverFile(listener);
  WEFT_RETURN_IF_ERROR(taken);
  return listener;
}

void RemoveHandoverFile(const HandoverListener& listener) {
  if (!listener.made.empty()) {
    ::unlink(listener.made.c_str());
    return;
  }
  struct stat facts {};
  if (::lstat(listener.path.c_str(), &facts) != 0) return;
  if (facts.st_dev == listener.device && facts.st_ino == listener.inode) {
    ::unlink(listener.path.c_str());
  }
}

absl::StatusOr<Descriptor> ConnectToPredecessor(const std::string& path) {
  WEFT_ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  WEFT_ASSIGN_OR_RETURN(Descriptor socket, OpenSocket());
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) return Descriptor();
    return StatusFromErrno(errno, StrCat("connect to the process that listens at ", path));
  }
  WEFT_RETURN_IF_ERROR(CheckUser(socket.get()));
  return socket;
}

absl::StatusOr<Descriptor> AcceptSuccessor(int listening) {
  Descriptor socket(::accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return Descriptor();
    return StatusFromErrno(errno, "accept a successor");
  }
  OwnDescriptor(socket.get());
  WEFT_RETURN_IF_ERROR(CheckUser(socket.get()));
  return socket;
}

pid_t PeerProcessId(int socket) {
  const std::optional<ucred> peer = PeerCredentials(socket);
  return peer.has_value() ? peer->pid : 0;
}

absl::Status SendHandover(int socket, std::string_view text, int descriptor) {
  if (text.size() > kMaxHandoverText) {
    return absl::InvalidArgumentError(StrCat("a message of a handover has ", text.size(),
                                             " bytes; at most ", kMaxHandoverText, " are allowed"));
  }
  // Where there is room for a message it can be sent.
  constexpr const char* kWhat = "send over the handover's socket";
  WEFT_RETURN_IF_ERROR(Await(socket, POLLOUT, kSendMs, kWhat));
  const absl::Status sent = SendDescriptors(
      socket, AsBytes(text), std::span<const int>(&descriptor, descriptor >= 0 ? 1 : 0));
  return absl::IsUnavailable(sent) ? PeerIsGone() : Annotate(sent, kWhat);
}

absl::StatusOr<HandoverMessage> ReceiveHandover(int socket, int timeout_ms) {
  WEFT_RETURN_IF_ERROR(Await(socket, POLLIN, timeout_ms, "wait in a handover"));
  std::array<std::byte, kMaxHandoverText> text;
  absl::StatusOr<DescriptorMessage> received = ReceiveDescriptors(socket, text, TakeAsOwn);
  // Nobody sends an empty message: it is the end.
  if (absl::IsUnavailable(received.status()) || (received.ok() && received->bytes == 0)) {
    return PeerIsGone();
  }
  if (!received.ok()) return Annotate(received.status(), "receive over the handover's socket");
  if (received->lost_descriptors && received->descriptors.empty()) {
    return absl::ResourceExhaustedError(
        "a descriptor came over the handover's socket, and this process may have no more: raise "
        "its limit (ulimit -n)");
  }
  if (received->descriptors.size() > 1 || received->lost_descriptors) {
    return absl::DataLossError(
        StrCat("a message with ", received->lost_descriptors ? "more than " : "",
               received->descriptors.size(), " descriptors is none of a handover"));
  }
  HandoverMessage message;
  message.text.assign(reinterpret_cast<const char*>(text.data()), received->bytes);
  if (!received->descriptors.empty()) message.descriptor = std::move(received->descriptors[0]);
  return message;
}

}  // namespace weft
