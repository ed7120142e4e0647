// Descriptors that an epoll watches only while its owner sleeps, or is about to.
//
// A socket that an epoll watches costs whoever sends to it: 0.5 us for each message on loopback,
// and more for each further epoll around that one, for the kernel tells them all. A thread that
// asks the socket itself has no use for that. So descriptors are watched from before a sleep until
// the owner has seen so much traffic since that it will hardly sleep soon.
//
// Threads: one at a time.
// Lifetime: the epoll outlives it. A descriptor may be closed while it is watched (the kernel lets
//   go of it) where the epoll watches nothing else: in a shared one, another of its descriptors may
//   get the number. So Release() first.
#pragma once

#include <poll.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft {

class SleepSet {
 public:
  // `epoll_fd` may watch other descriptors too, but none that are given here.
  void Use(int epoll_fd) { epoll_fd_ = epoll_fd; }

  // Watches `wanted` (as for poll(2)), and nothing else that was watched here before; of those only
  // what is no Unix socket. (A provider's signals to its own threads are pairs of such, and one of
  // libfabric 1.17's stays set for good.) No system call when nothing has changed: the same
  // descriptors, the same events, and the same `version`, which tells descriptors apart that have
  // one number, one after the other. After an error nothing is watched.
  absl::Status Watch(absl::Span<const pollfd> wanted, uint64_t version);

  // Watches nothing any more. No system call when nothing is watched.
  void Release();

  bool watching() const { return !watched_.empty(); }

 private:
  bool IsWatching(absl::Span<const pollfd> wanted, uint64_t version) const;

  int epoll_fd_ = -1;
  uint64_t version_ = 0;
  std::vector<pollfd> wanted_;  // of the last Watch()
  std::vector<int> watched_;    // those of it that the epoll has
};

}  // namespace weft
