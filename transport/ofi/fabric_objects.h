// The libfabric objects that every domain has.
//
// Threads: the engine's; the last owner destroys them.
// Queues have fixed sizes where `sends` is given (verbs, where an overrun ends every connection of
// the queue), and then may come out smaller than asked for: devices differ, and so do their limits.
//
// Lifetime: destroyed in reverse order of declaration, which is the order that libfabric wants.
//   Endpoints and registrations are closed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/muted_queue.h"
#include "transport/ofi/queue_groups.h"

namespace weft {

struct QueueSizes {
  uint32_t receives = 0;  // posted at one time
  uint32_t sends = 0;     // sends and operations in flight; 0: the provider makes room as needed
};

struct FabricObjects {
  InfoPtr info;
  FabricPtr fabric;
  DomainPtr domain;
  QueuePtr queue;
  MutedQueue near_queue;                // null: there is none; see OpenNearQueue()
  std::unique_ptr<QueueGroups> groups;  // null: there are none; see OpenGroups()
  EndpointPtr shared_receive;
  QueueSizes sizes;  // as they came out

  // Opens all that `info` describes.
  static absl::StatusOr<std::shared_ptr<FabricObjects>> Open(InfoPtr info, fi_wait_obj wait_object,
                                                             const QueueSizes& wanted);

  // A second completion queue, for few endpoints, which the provider asks one by one: that is
  // faster than the descriptor that `queue` waits on, for both ends. Without it all goes on as
  // before.
  void OpenNearQueue();
  // Queues for all further endpoints, instead of `queue`.
  absl::Status OpenGroups();

 private:
  int OpenQueues(fi_wait_obj wait_object);
  bool MayShrink();
};

}  // namespace weft
