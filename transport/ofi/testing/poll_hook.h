// For tests: something happens while the provider looks at its sockets. libfabric 1.17's tcp does
// so by poll(2), whose place a function of this library takes in the whole program.
#pragma once

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
