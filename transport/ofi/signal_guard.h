// Keeps the application's signal handling its own.
//
// Two parts of libfabric take signals for themselves:
//   - libinfinipath, which Debian's libfabric brings along, handles SEGV, BUS, ILL, ABRT, INT and
//     TERM from before main() and turns a crash into exit code 1 without a core;
//   - the shm provider handles BUS, SEGV, TERM and INT from the first endpoint on.
// Both are undone: the first by RemoveForeignSignalHandlers(), the second by a guard around the
// call that installs them. (What shm's handlers do, removing its file in /dev/shm, is done by
// whoever notices that its owner is gone: shm_name.h.)
//
// Threads: signal dispositions belong to the process; while a guard lives, no other thread may
//   change those that it keeps. Domains are opened early, from one thread.
#pragma once

#include <csignal>

namespace weft {

// Resets handlers that belong to a library known to install them uninvited. Handlers of the
// application stay. Idempotent.
void RemoveForeignSignalHandlers();

// Puts the dispositions back on destruction.
class SignalGuard {
 public:
  SignalGuard();
  ~SignalGuard();
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr int kKept[] = {SIGBUS, SIGSEGV, SIGTERM, SIGINT};
  static constexpr int kCount = sizeof(kKept) / sizeof(kKept[0]);

  struct sigaction before_[kCount];
};

}  // namespace weft
