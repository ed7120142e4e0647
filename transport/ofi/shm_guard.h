// Frees this process from locks that died with their holder.
//
// In libfabric 1.17 a process spin lock stands in each shm endpoint's memory. A sender takes the
// receiver's; a receiver takes its own to look at what came. A process that is killed while it
// holds one leaves it taken, and the survivor's next call into the provider spins for ever
// (measured: 1 kill in 6 under full load). The engine's thread cannot help itself then. So one
// thread for the whole process sleeps on the peers' processes (pidfd); when one ends, it opens both
// locks of that link every millisecond until the link is closed.
//
// That is safe, and needs no guess: every link has endpoints of its own (shm_endpoint.h), so only
// its two ends ever take these locks; one end is dead, and the other is one thread, which excludes
// nobody. What the dead left half done in the queues ends with the link.
//
// Active on libfabric 1.17 with the layout that it has (version byte 4), and Linux 5.3 or newer.
// Elsewhere Watch() returns null, and nothing happens.
//
// Threads: all functions from any thread. The thread starts with the first guard and ends with the
//   last. It takes no signals.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace weft {

// Watches over one link until destroyed.
class ShmWatch {
 public:
  virtual ~ShmWatch() = default;
};

class ShmGuard {
 public:
  // The one of this process, started if it is not running. Null where it cannot be of use.
  static std::shared_ptr<ShmGuard> Get();
  ~ShmGuard();
  ShmGuard(const ShmGuard&) = delete;
  ShmGuard& operator=(const ShmGuard&) = delete;

  // Both endpoints' files must exist. Null when they are not laid out as expected, or the process
  // cannot be watched; also for this process itself.
  std::unique_ptr<ShmWatch> Watch(int32_t peer_process_id, const std::string& own_endpoint,
                                  const std::string& peer_endpoint);

 private:
  class Watcher;

  explicit ShmGuard(std::shared_ptr<Watcher> watcher);

  const std::shared_ptr<Watcher> watcher_;
};

// How many locks have been opened that were held by the dead, in this process. For tests and for
// `explain`.
uint64_t ShmLocksFreed();

}  // namespace weft
