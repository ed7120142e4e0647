// One side of one link through shared memory: an RDM endpoint and an address vector with one entry.
//
// Every link has an endpoint of its own, though the provider could serve all with one. What a
// peer's death can damage belongs to an endpoint (its lock, its queues): so it ends with the link,
// and no other link notices. Price: about 4 ms to open, 4 MiB of /dev/shm.
//
// Endpoints share the domain's completion queue and receive context, and hold on to them.
//
// Threads: the engine's; destruction from any, when nobody uses the endpoint (shm_keeper.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/fabric_objects.h"

namespace weft {

class ShmEndpoint {
 public:
  // `name` becomes the name of the endpoint and of its file.
  static absl::StatusOr<std::unique_ptr<ShmEndpoint>> Open(std::shared_ptr<FabricObjects> objects,
                                                           std::string name);

  // Maps the peer's endpoint. Once. REQUIRES: its file exists.
  absl::Status Insert(const std::string& peer);

  const std::string& name() const { return name_; }
  fid_ep* get() const { return endpoint_.get(); }
  fi_addr_t peer() const { return peer_; }

 private:
  ShmEndpoint(std::shared_ptr<FabricObjects> objects, std::string name)
      : objects_(std::move(objects)), name_(std::move(name)) {}

  // In the order of creation.
  const std::shared_ptr<FabricObjects> objects_;
  const std::string name_;
  AddressVectorPtr addresses_;
  EndpointPtr endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
};

}  // namespace weft
