#include "transport/ofi/muted_queue.h"

#include <sys/socket.h>

#include <cstddef>

namespace weft {
namespace {

// Without endpoints a queue waits for two descriptors of the provider's own.
constexpr size_t kMostDescriptors = 8;

struct Descriptors {
  // False: there is no asking for them, or there are too many.
  bool Ask(fid_cq* queue) {
    fi_wait_pollfd wanted = {};
    wanted.nfds = kMostDescriptors;
    wanted.fd = fds;
    if (fi_control(&queue->fid, FI_GETWAIT, &wanted) != 0) return false;
    count = wanted.nfds;
    return true;
  }
  bool Poll() { return poll(fds, count, 0) >= 0; }

  pollfd fds[kMostDescriptors];
  size_t count = 0;
};

// The only descriptor that fi_cq_signal() makes readable; -1: there is none, or more.
int FindSignal(fid_cq* queue) {
  Descriptors descriptors;
  if (!descriptors.Ask(queue) || !descriptors.Poll()) return -1;
  const Descriptors before = descriptors;
  if (fi_cq_signal(queue) != 0 || !descriptors.Poll()) return -1;
  int found = -1;
  for (size_t i = 0; i < descriptors.count; ++i) {
    if (descriptors.fds[i].revents == before.fds[i].revents) continue;
    if (found >= 0 || descriptors.fds[i].revents != POLLIN) return -1;
    found = descriptors.fds[i].fd;
  }
  return found >= 0 && IsSignal(found) ? found : -1;
}

}  // namespace

bool Mute(fid_cq* queue) {
  fi_cq_read(queue, nullptr, 0);  // the provider takes note of its signal's descriptor
  const int signal = FindSignal(queue);
  char byte;
  return signal >= 0 && recv(signal, &byte, sizeof(byte), MSG_DONTWAIT) == sizeof(byte);
}

bool IsSignal(int fd) {
  int family = AF_UNSPEC;
  socklen_t bytes = sizeof(family);
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_UNIX;
}

}  // namespace weft
