// A completion queue of libfabric 1.17's tcp provider that does not signal to itself.
//
// A queue that can be waited on has a socket pair. The provider writes a byte there with each
// completion, if there is none yet, and takes it back with a later read of the queue: two system
// calls for each message, of 0.4 to 1.3 us each, before the message is handed out. They are for
// those who sleep in the provider. Weft's engines sleep on the sockets themselves.
//
// So the signal's byte is taken in the provider's place, once. The provider, which has written it
// and not read it, writes no other; and as nothing is there to be read, it does not try. That holds
// as long as nobody calls fi_trywait() or fi_cq_sread() for this queue, which wait for the byte: 10
// seconds. To sleep, Settle() and then wait for descriptors(). (That is as good for a queue that
// could not be muted: it only costs more.)
//
// Threads: the engine's.
// Lifetime: endpoints that complete to it are closed before.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "transport/ofi/fabric.h"

namespace weft {

// What a queue waits for.
struct QueueDescriptors {
  // Endpoints that complete to one queue; each has a descriptor.
  static constexpr size_t kMostEndpoints = 64;
  // With the provider's own: a signal of the queue, and one of its list of descriptors.
  static constexpr size_t kMost = kMostEndpoints + 2;

  absl::Span<const pollfd> all() const { return absl::MakeConstSpan(fds, count); }

  pollfd fds[kMost];
  size_t count = 0;
  uint64_t version = 0;  // grows when descriptors come and go: numbers are used again
};

class MutedQueue {
 public:
  // With room for `entries`, and for more as needed. A queue that could not be muted is one, too,
  // and said so in the log.
  static absl::StatusOr<MutedQueue> Open(fid_domain* domain, size_t entries);

  MutedQueue() = default;  // none: get() is null

  fid_cq* get() const { return queue_.get(); }

  // Has the provider go on. False: there are entries.
  bool IsEmpty() { return fi_cq_read(get(), nullptr, 0) == -FI_EAGAIN; }
  // Before a sleep: whether descriptors() will tell of whatever comes. False: there is something to
  // be read.
  bool Settle();
  // As of the last read.
  absl::Status GetDescriptors(QueueDescriptors* descriptors) const;

 private:
  explicit MutedQueue(fid_cq* queue) : queue_(queue) {}

  QueuePtr queue_;
};

}  // namespace weft
