// A thread for what the kernel may take long for and nobody waits for, such as closing what a
// stranger has sent, or unmapping memory for the last time, which frees its pages (0.2 ms for 1
// MiB).
//
// The tasks are done in line. The thread is there for as long as there are some, and is no
// engine's: it has an ordinary priority, the processors of the process's first thread, whatever
// those of the thread have that brings a task, and takes none of the host's signals.
//
// Threads: any. Lifetime: the process's (ProcessWide), for its thread may outlive static objects.
// Errors: where there is no thread to be had, tasks wait until Bring() or waiting() is called
// again. A child of fork(2) leaves what was in line to its parent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>

#include "core/fork_guard.h"
#include "core/function.h"

namespace weft {

class SideThread {
 public:
  SideThread() = default;
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  // Behind those that were brought before. The line has no limit of its own: ask waiting().
  void Bring(Function<void()> task);
  // Tasks that have not ended, the one that runs included.
  size_t waiting();

 private:
  void LookForFork();  // not under mutex_
  void LookForThread();
  void Run();

  ProcessMutex mutex_;
  // Guarded by mutex_. The first one in line may be what the thread is at; it is empty then.
  std::deque<Function<void()>> line_;
  bool running_ = false;
  uint32_t forks_ = ForkCount();  // when this was last looked at
};

}  // namespace weft
