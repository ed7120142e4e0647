// Links over libfabric's tcp: connected endpoints (fabric_domain.h), driven as those of verbs.
//
// A server's domain listens at one address; a client's is bound to none and does not listen.
//
// What is different from verbs:
//   - A batch that finds no receive waits in the sender's socket: so all links share few receives.
//   - A send or a write can wait until the peer's provider has it (FabricTraits::fences).
//   - What a connected peer writes is not checked by the provider, and may end the process: for
//     trusted networks only.
//
// Threads: the engine's.
#pragma once

#include <memory>

#include "transport/ofi/fabric_domain.h"

namespace weft {

class OfiTcpDomain final : public FabricDomain {
 public:
  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const OfiOptions& options);

 private:
  using FabricDomain::FabricDomain;
};

}  // namespace weft
