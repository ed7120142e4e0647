// The Region of tcp domains: nothing to register, but a place in the table that peers' requests are
// looked up in.
//
// Threads: the engine's. Lifetime: as Region.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/region.h"
#include "transport/tcp/tcp_parts.h"

namespace weft {

class TcpRegion final : public Region {
 public:
  static absl::StatusOr<std::unique_ptr<Region>> Open(TcpParts* parts, MutableByteSpan memory,
                                                      Access access);
  // Links that are in the midst of moving its bytes stop.
  ~TcpRegion() override;

  bool BelongsTo(const TcpParts* parts) const { return parts_ == parts; }

 private:
  TcpRegion(TcpParts* parts, MutableByteSpan memory, uint64_t key)
      : Region(memory, RemoteSpan{key, 0, memory.size()}), parts_(parts) {}

  TcpParts* const parts_;
};

}  // namespace weft
