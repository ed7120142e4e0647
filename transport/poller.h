// Readiness of descriptors for one engine: an epoll instance with handlers.
//
// Threads: the engine's. Lifetime: handlers stay valid until Remove(); removing any descriptor,
// also one that is ready in the same round, is allowed inside OnReady().
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/slab.h"

namespace weft {

class PollHandler {
 public:
  // `events`: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR as in epoll(7). Level-triggered, unless it is
  // watched with EPOLLET.
  virtual void OnReady(uint32_t events) = 0;

 protected:
  ~PollHandler() = default;
};

class Poller {
 public:
  // Of each connection a control socket and what its path has: tcp's sockets, or the doorbell of
  // shared memory. And completion queues.
  static constexpr uint32_t kMaxDescriptors = 16'384;

  static absl::StatusOr<std::unique_ptr<Poller>> Create();
  ~Poller();

  // Watches `descriptor`, which stays the caller's. `handler` may be null: the descriptor then
  // only ends a sleep.
  absl::Status Add(int descriptor, uint32_t events, PollHandler* handler);
  absl::Status Modify(int descriptor, uint32_t events);
  void Remove(int descriptor);

  // Calls the handlers of what the last Wait() has found, or, if that was nothing, of what is ready
  // now. Returns how many it called.
  int Poll();
  bool has_handlers() const { return handlers_ > 0; }

  // Sleeps until something is ready, for `timeout_ns` at most (rounded up to milliseconds); 0 looks
  // only. Whether there is something: it is kept for the next Poll(). Calls nobody.
  bool Wait(uint64_t timeout_ns);

  // Readable when any watched descriptor is ready.
  int descriptor() const { return epoll_fd_; }

 private:
  // Ready descriptors taken in one system call: a burst of closing control sockets fits; more stay
  // ready for the next round.
  static constexpr int kEventsPerRound = 64;

  struct Watch {
    int descriptor = -1;
    PollHandler* handler = nullptr;
  };

  Poller();

  int epoll_fd_ = -1;
  uint32_t handlers_ = 0;  // watches that have one
  Slab<Watch> watches_;
  std::vector<SlabHandle> by_descriptor_;  // grows to the largest descriptor; setup only
  int ready_count_ = 0;                    // of ready_: found by Wait(), and not told yet
  epoll_event ready_[kEventsPerRound];
};

}  // namespace weft
