// A completion queue of libfabric 1.17's tcp provider that does not signal to itself.
//
// A queue that can be waited on has a socket pair. With each completion the provider writes a byte
// to it, if there is none yet, and a later read of the queue takes the byte back: two system calls
// for each message, of 0.4 to 1.3 us each, before the message is handed out. They serve those who
// sleep in the provider. Weft's engines sleep on the sockets themselves.
//
// So MutedQueue reads that byte in the provider's place, once, when the queue is opened. The
// provider has written it and not read it, so it writes no other; and as there is nothing to read,
// it does not try. This holds as long as nobody calls fi_trywait() or fi_cq_sread() for this queue:
// they would wait for the byte, for 10 seconds.
//
// Before a sleep the queue is read, and then:
//
//   there were entries        no sleep yet: they are to be taken
//   none, a socket is ready   no sleep yet: the provider may have begun something that the socket
//                             has no room for, such as the answer to a peer's read. It asks for
//                             the room at the beginning of the next read, and until then no
//                             descriptor tells of it
//   none, no socket is ready  the engine may sleep: the descriptors of what was begun before wait
//                             for room, and all others for news
//
// (For a queue that could not be muted this is right as well; it only costs more.)
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

// What a queue waits for, and what its last read has found.
struct QueueDescriptors {
  // Endpoints that complete to one queue; each has a descriptor.
  static constexpr size_t kMostEndpoints = 64;
  // With the provider's own: a signal of the queue, and one of its list of descriptors.
  static constexpr size_t kMost = kMostEndpoints + 2;

  // No socket was ready.
  bool quiet() const;
  absl::Span<const pollfd> all() const { return absl::MakeConstSpan(fds, count); }

  pollfd fds[kMost];  // with what poll(2) has answered
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

  // Has the provider go on: its endpoints send and receive what they can, and it takes note of
  // descriptors that have come. Takes no entries.
  void Progress() { fi_cq_read(get(), nullptr, 0); }
  // The same. False: there are entries.
  bool IsEmpty() { return fi_cq_read(get(), nullptr, 0) == -FI_EAGAIN; }
  // Before a sleep: `descriptors` will tell of whatever comes. False: read on.
  bool Settle(QueueDescriptors* descriptors);
  // As of the last read: one of the queue's own.
  absl::Status GetDescriptors(QueueDescriptors* descriptors) const;

 private:
  explicit MutedQueue(fid_cq* queue) : queue_(queue) {}

  QueuePtr queue_;
};

}  // namespace weft
