// Descriptors that a provider would have polled, entries as for poll(2), watched by an epoll.
#pragma once

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cstdint>

namespace weft {

// The same descriptor, awaited for the same.
inline bool IsSame(const pollfd& a, const pollfd& b) {
  return a.fd == b.fd && a.events == b.events;
}

inline uint32_t EpollEvents(const pollfd& entry) {
  return ((entry.events & POLLIN) != 0 ? uint32_t{EPOLLIN} : 0) |
         ((entry.events & POLLOUT) != 0 ? uint32_t{EPOLLOUT} : 0);
}

// Whether it is a signal of the provider to its own threads: those are pairs of Unix sockets, and
// links have none. It may stay set for good, so that only news of it count, if anything does.
inline bool IsSignal(int fd) {
  int family = AF_UNSPEC;
  socklen_t bytes = sizeof(family);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

}  // namespace weft
