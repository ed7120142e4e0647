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
  // `events`: EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR as in epoll(7). Level-triggered.
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

  // Calls the handlers of what is ready now. Returns how many it called. No system call where there
  // is no handler.
  int Poll();
  bool has_handlers() const { return handlers_ > 0; }
  // Whether descriptor() is readable now.
  bool HasReady() const;

  // Sleeps until something is ready, for `timeout_ns` at most (rounded up to milliseconds). Calls
  // nobody.
  void Wait(uint64_t timeout_ns);

  // Readable when any watched descriptor is ready.
  int descriptor() const { return epoll_fd_; }

 private:
  struct Watch {
    int descriptor = -1;
    PollHandler* handler = nullptr;
  };

  Poller();

  int epoll_fd_ = -1;
  uint32_t handlers_ = 0;  // watches that have one
  Slab<Watch> watches_;
  std::vector<SlabHandle> by_descriptor_;  // grows to the largest descriptor; setup only
};

}  // namespace weft
