#include "transport/ofi/testing/poll_hook.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int epoll_wait(int epoll, epoll_event* events, int count, int timeout_ms) {
  weft::PollHook::OnLook();
  return static_cast<int>(syscall(SYS_epoll_pwait, epoll, events, count, timeout_ms, nullptr, 0));
}
