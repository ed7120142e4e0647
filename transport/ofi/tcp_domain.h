// Links over libfabric's tcp: connected endpoints (msg_domain.h), listening on one address or all.
//
// Threads: the engine's.
#pragma once

#include <memory>

#include "transport/ofi/msg_domain.h"

namespace weft {

class TcpDomain final : public MsgDomain {
 public:
  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const OfiOptions& options);

 private:
  using MsgDomain::MsgDomain;
};

}  // namespace weft
