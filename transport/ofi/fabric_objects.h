// The libfabric objects that every domain has. Shared, because an shm endpoint may outlive its
// domain for a while (shm_keeper.h), and needs them to be closed.
//
// Threads: the engine's; the last owner destroys them.
// Lifetime: destroyed in reverse order of declaration, which is the order that libfabric wants.
//   Endpoints and registrations are closed before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/ofi/fabric.h"

namespace weft {

struct FabricObjects {
  InfoPtr info;
  FabricPtr fabric;
  DomainPtr domain;
  QueuePtr queue;
  EndpointPtr shared_receive;

  // Opens all that `info` describes. `receive_entries`: how many receives may be posted.
  static absl::StatusOr<std::shared_ptr<FabricObjects>> Open(InfoPtr info, fi_wait_obj wait_object,
                                                             size_t receive_entries);
};

}  // namespace weft
