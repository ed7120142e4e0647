// For tests: something happens while the provider looks at its sockets. Include it in one file of a
// test: it takes the place of poll(2), by which libfabric 1.17's tcp looks at them, in the whole
// program.
#pragma once

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <utility>

namespace weft {

// One at a time; in one thread.
class PollHook {
 public:
  // `act` comes right before the `nth` poll from now on, 1 being the next.
  PollHook(int nth, std::function<void()> act) {
    left_ = nth;
    act_ = std::move(act);
  }
  ~PollHook() { act_ = nullptr; }
  PollHook(const PollHook&) = delete;
  PollHook& operator=(const PollHook&) = delete;

  static bool has_acted() { return act_ == nullptr; }

  static void OnPoll() {
    if (act_ != nullptr && --left_ == 0) std::exchange(act_, nullptr)();
  }

 private:
  static inline int left_ = 0;
  static inline std::function<void()> act_;
};

}  // namespace weft

extern "C" int poll(pollfd* entries, nfds_t count, int timeout_ms) {
  weft::PollHook::OnPoll();
  const timespec timeout = {timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
  return static_cast<int>(
      syscall(SYS_ppoll, entries, count, timeout_ms < 0 ? nullptr : &timeout, nullptr, 0));
}
