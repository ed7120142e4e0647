// Keeps a closed shm endpoint mapped while the other end of its link is in this process and still
// open.
//
// Between processes each side has its own mapping of the other's memory. Within one process the
// provider shares one: after fi_close() of an endpoint, the next post of the other end would touch
// unmapped memory. So an endpoint that closes is parked here until nobody in this process knows it
// any more.
//
// Threads: any; guarded by a mutex. Used when links open and close, never while they work. A parked
//   endpoint may be closed on another engine's thread: shm domains are opened with FI_THREAD_SAFE.
#pragma once

#include <memory>
#include <string>

#include "transport/ofi/shm_endpoint.h"

namespace weft {

class ShmKeeper {
 public:
  // The one of this process.
  static ShmKeeper& Get();

  // An endpoint of this process is open.
  void Opened(const std::string& name);
  // Another endpoint of this process has mapped it, or does not use it any more. Endpoints of other
  // processes are ignored.
  void Learned(const std::string& name);
  void Forgotten(const std::string& name);
  // The owner is done with it: destroyed now, or when the last one has forgotten it.
  void Closed(std::unique_ptr<ShmEndpoint> endpoint);

 private:
  ShmKeeper() = default;
};

}  // namespace weft
