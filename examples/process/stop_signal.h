// Ctrl-C and SIGTERM as something to wait for or to look at, instead of a handler that interrupts.
//
// Threads:    create it in main() before any other thread: threads inherit what it blocks, and no
//             handler that a library has installed ever runs. The rest from that thread.
// Lifetime:   one in a process. The signals stay blocked afterwards: the rest of main() is the
//             clean-up that they ask for.
#pragma once

#include <csignal>

namespace examples {

class StopSignal {
 public:
  StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // Blocks until SIGINT or SIGTERM comes. Returns which.
  int Wait();

  // Whether one has come. A system call until it has.
  bool Requested();

 private:
  sigset_t signals_;
  int received_ = 0;  // 0: none yet
};

}  // namespace examples
