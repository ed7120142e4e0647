#include "transport/ofi/testing/poll_hook.h"

#include <poll.h>
#include <rdma/fabric.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

// Weft itself waits by epoll_wait(2) as well, for its queue groups, which it has up to 1.17 only.
bool ProviderPolls() { return FI_VERSION_LT(fi_version(), FI_VERSION(1, 18)); }

}  // namespace

extern "C" int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  if (ProviderPolls()) weft::PollHook::OnLook();
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, entries, count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 0));
}

extern "C" int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
  if (!ProviderPolls()) weft::PollHook::OnLook();
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, count, timeout_ms, nullptr, 0));
}
