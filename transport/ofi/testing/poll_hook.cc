#include "transport/ofi/testing/poll_hook.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  weft::PollHook::OnPoll();
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, entries, count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 0));
}
