// Keeps a closed shm endpoint mapped while another engine of the same process still knows it.
//
// Between processes each side has its own mapping of the other's memory. Within one process the
// provider shares one: after fi_close() of an endpoint, the next post of another engine to it
// would touch unmapped memory. So an endpoint that closes is parked here until nobody in this
// process has its address any more.
//
// Threads: any; guarded by a mutex. Used when domains and links open and close, never while they
//   work.
#pragma once

#include <memory>
#include <string>

namespace weft {

// What is parked: destroying it closes the endpoint and all below it.
class ParkedEndpoint {
 public:
  virtual ~ParkedEndpoint() = default;
};

class ShmKeeper {
 public:
  // The one of this process.
  static ShmKeeper& Get();

  // An endpoint of this process is open under `address`.
  void Opened(const std::string& address);
  // Another domain of this process has learned `address`, or forgotten it. Addresses of other
  // processes are ignored.
  void Learned(const std::string& address);
  void Forgotten(const std::string& address);
  // The endpoint is no longer used by its owner: destroyed now, or when the last one has
  // forgotten it.
  void Closed(const std::string& address, std::unique_ptr<ParkedEndpoint> endpoint);

 private:
  ShmKeeper() = default;
};

}  // namespace weft
