// For tests: something happens while the provider looks at its sockets, which libfabric's tcp does
// by epoll_wait(2): a function of this library takes its place in the whole program.
#pragma once

#include <functional>
#include <utility>

namespace weft {

// One at a time; in one thread.
class PollHook {
 public:
  // `act` comes right before the `nth` look from now on, 1 being the next.
  PollHook(int nth, std::function<void()> act) {
    left_ = nth;
    act_ = std::move(act);
  }
  ~PollHook() { act_ = nullptr; }
  PollHook(const PollHook&) = delete;
  PollHook& operator=(const PollHook&) = delete;

  static bool has_acted() { return act_ == nullptr; }

  // The provider, or somebody else who uses the same call, is about to look.
  static void OnLook() {
    if (act_ != nullptr && --left_ == 0) std::exchange(act_, nullptr)();
  }

 private:
  // A thread of the provider's own finds none.
  static inline thread_local int left_ = 0;
  static inline thread_local std::function<void()> act_;
};

}  // namespace weft
