#include "transport/sockets/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "core/status.h"
#include "core/strings.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace weft {
namespace {

bool SetOption(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// Of a Unix socket, and of those that are accepted from it; no other one has the option.
void TakeNoDescriptors(int fd) { SetOption(fd, SOL_SOCKET, SO_PASSRIGHTS, 0); }

// Each of these improves a working socket: a kernel that lacks one is no reason to fail. They do
// nothing to a Unix socket.
void SetTcpOptions(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // Lost heartbeats are sent again at a steady pace before the kernel begins to back off: after a
  // cut of 1 s they are through in time.
  SetOption(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, 1);
  SetSilence(fd, kDefaultSilenceNs);  // the last of them: HasTcpOptions()
}

// What was accepted has them from its listener, for Linux copies the whole socket: a stranger costs
// one system call here and not seven. It does not where somebody else has made the listener, and it
// came before that was ours.
bool HasTcpOptions(int fd) {
  unsigned silence_ms = 0;
  socklen_t length = sizeof(silence_ms);
  if (getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, &length) != 0) return true;
  return silence_ms == kDefaultSilenceNs / 1'000'000;
}

constexpr socklen_t kUnnamedUnixBytes = offsetof(sockaddr_un, sun_path);

// The peer is not there, whatever the reason is called: the caller may try again or elsewhere.
absl::Status DialError(int error, const KernelAddress& address) {
  absl::Status status = StatusFromErrno(error, StrCat("connect to ", address.text()));
  switch (error) {
    case ECONNREFUSED:
    case ENOENT:
      return absl::UnavailableError(StrCat(ToStd(status.message()), ": no server listens there"));
    case EAGAIN:  // Unix sockets only
      return absl::ResourceExhaustedError(
          StrCat("connect to ", address.text(), ": the server's queue of clients is full"));
    case ETIMEDOUT:
      return absl::UnavailableError(status.message());
    default:
      return status;
  }
}

}  // namespace

absl::StatusOr<Descriptor> OpenStream(const KernelAddress& address) {
  Descriptor descriptor(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!descriptor.valid()) {
    return StatusFromErrno(errno, StrCat("open a socket for ", address.text()));
  }
  if (address.family() == AF_UNIX) {
    TakeNoDescriptors(descriptor.get());
  } else {
    SetTcpOptions(descriptor.get());
  }
  return descriptor;
}

// Several probes in the time: one may be lost. TCP_USER_TIMEOUT decides, for probes and for data;
// the number of probes would only where a kernel lacks it.
void SetSilence(int fd, uint64_t silence_ns) {
  constexpr uint64_t kProbes = 3;
  const uint64_t ms = std::max(silence_ns, kMinSilenceNs) / 1'000'000;
  const int pause_sec = static_cast<int>(std::max<uint64_t>(ms / 1000 / kProbes, 1));
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, pause_sec);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, pause_sec);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(kProbes));
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(ms));
}

absl::StatusOr<Descriptor> ListenInternet(const KernelAddress& address) {
  WEFT_ASSIGN_OR_RETURN(Descriptor descriptor, OpenStream(address));
  // A restarted server takes its port again at once; a running one is still refused.
  SetOption(descriptor.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(descriptor.get(), address.get(), address.length) != 0 ||
      ::listen(descriptor.get(), kListenBacklog) != 0) {
    return StatusFromErrno(errno, StrCat("listen on ", address.text()));
  }
  return descriptor;
}

absl::StatusOr<Descriptor> DuplicateListener(int fd) {
  int listens = 0;
  int type = 0;
  socklen_t length = sizeof(int);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
      getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0) {
    return StatusFromErrno(errno, StrCat("take descriptor ", fd, " as a socket that listens"));
  }
  if (listens == 0 || type != SOCK_STREAM) {
    return absl::InvalidArgumentError(
        StrCat("descriptor ", fd, " is no stream socket that listens"));
  }
  Descriptor copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid() || ::fcntl(copy.get(), F_SETFL, O_NONBLOCK) != 0) {
    return StatusFromErrno(errno, StrCat("duplicate the listening socket ", fd));
  }
  TakeNoDescriptors(copy.get());
  SetTcpOptions(copy.get());  // for clients
  return copy;
}

std::optional<ucred> PeerCredentials(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return std::nullopt;
  return peer;
}

absl::StatusOr<Descriptor> StartDial(const KernelAddress& address) {
  WEFT_ASSIGN_OR_RETURN(Descriptor descriptor, OpenStream(address));
  if (::connect(descriptor.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    return DialError(errno, address);
  }
  return descriptor;
}

absl::Status FinishDial(int fd, const KernelAddress& address) {
  int error = 0;
  socklen_t length = sizeof(error);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) error = errno;
  if (error != 0) return DialError(error, address);
  return absl::OkStatus();
}

absl::StatusOr<Descriptor> AcceptClient(int listening_fd) {
  while (true) {
    Descriptor client(::accept4(listening_fd, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (client.valid()) {
      if (!HasTcpOptions(client.get())) SetTcpOptions(client.get());
      return client;
    }
    switch (errno) {
      case EINTR:
      case ECONNABORTED:  // this one left before it was taken; look for the next
        continue;
      case EAGAIN:
        return Descriptor();
      default:
        return StatusFromErrno(errno, "accept a client");
    }
  }
}

bool HasLeft(int fd) {
  std::byte first;
  const ssize_t count = ::recv(fd, &first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
  return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
}

void ResetOnClose(int fd) {
  const linger at_once = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

absl::StatusOr<KernelAddress> LocalAddress(int fd) {
  KernelAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return StatusFromErrno(errno, "ask for a socket's own address");
  }
  return address;
}

uint64_t PeerHost(int fd) {
  KernelAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return 0;
  }
  if (address.family() == AF_UNIX) {
    const std::optional<ucred> peer = PeerCredentials(fd);
    if (!peer.has_value()) return 0;
    // No IPv6 address of a peer begins like this: FF is for groups.
    constexpr uint64_t kUser = 0x01FF;
    constexpr uint64_t kProcess = 0x02FF;
    return peer->uid == geteuid() ? uint64_t{static_cast<uint32_t>(peer->pid)} << 16 | kProcess
                                  : uint64_t{peer->uid} << 16 | kUser;
  }
  if (address.family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address.get())->sin_addr.s_addr;
  }
  if (address.family() != AF_INET6) return 0;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_addr;
  // An IPv4 peer of an IPv6 socket has its address at the end.
  const bool mapped = IN6_IS_ADDR_V4MAPPED(&host);
  uint64_t number = 0;
  std::memcpy(&number, &host.s6_addr[mapped ? 12 : 0], mapped ? 4 : sizeof(number));
  return number;
}

bool AddKernelCredentials(int fd, PeerIdentity* identity) {
  const absl::StatusOr<KernelAddress> own = LocalAddress(fd);
  if (!own.ok() || own->family() != AF_UNIX) return false;
  const std::optional<ucred> peer = PeerCredentials(fd);
  if (!peer.has_value()) return false;
  identity->user_id = peer->uid;
  identity->group_id = peer->gid;
  identity->process_id = peer->pid;
  return true;
}

std::string PeerAddressText(int fd) {
  KernelAddress address;
  address.length = sizeof(address.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    return "";
  }
  // Of two ends of a Unix socket, the one that was accepted has the listener's name. What the other
  // may have called itself says nothing.
  const absl::StatusOr<KernelAddress> own = LocalAddress(fd);
  if (address.family() != AF_UNIX || !own.ok() || own->length <= kUnnamedUnixBytes) {
    return address.text();
  }
  const std::optional<ucred> peer = PeerCredentials(fd);
  if (!peer.has_value()) return "";
  return StrCat("unix:(process ", peer->pid, " of user ", peer->uid, ")");
}

}  // namespace weft
