// The near end of one-sided operations: memory of this process, registered with each path when it
// is first used there, and never again.
//
// A Region belongs to one path's device; a server's clients come over several. LocalMemory is the
// one name for the memory, and keeps a Region for each path: an array access on the hot path.
//
// Access is kLocalOnly: peers get leases (exports.h), or windows for one call (rpc/bulk.h).
//
// Threads: For() and the destructor on the engine's thread.
// Lifetime: the memory outlives it; it is destroyed before the Transport, when no operation on it
//   is outstanding.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/region.h"
#include "transport/transport.h"

namespace weft {

class LocalMemory {
 public:
  explicit LocalMemory(MutableByteSpan memory) : memory_(memory) {}
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  MutableByteSpan bytes() const { return memory_; }

  // The region of this connection's path. The first time on a path it registers (not for the hot
  // path: call it once when the connection opens); errors are Connection::Register()'s.
  // REQUIRES: the connection is open.
  absl::StatusOr<const Region*> For(Connection& connection) {
    std::unique_ptr<Region>& region = regions_[connection.path_number()];
    if (region == nullptr) [[unlikely]] {
      absl::StatusOr<std::unique_ptr<Region>> made =
          connection.Register(memory_, Access::kLocalOnly);
      if (!made.ok()) return made.status();
      region = *std::move(made);
    }
    return region.get();
  }

 private:
  const MutableByteSpan memory_;
  std::array<std::unique_ptr<Region>, kMaxPathNumbers> regions_;  // [path_number()]
};

}  // namespace weft
