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
  EndpointPtr shared_receive;
  QueueSizes sizes;  // as they came out

  // Opens all that `info` describes.
  static absl::StatusOr<std::shared_ptr<FabricObjects>> Open(InfoPtr info, fi_wait_obj wait_object,
                                                             const QueueSizes& wanted);

 private:
  int OpenQueues(fi_wait_obj wait_object);
  bool MayShrink();
};

}  // namespace weft
