// The near end of one-sided operations: memory of this process, registered with each path when it
// is first used there, and never again.
//
// A Region belongs to one path's device; a server's clients come over several. LocalMemory is the
// one name for the memory, and keeps a Region for each path: an array access on the hot path.
// Applications do not meet it: they have a Buffer (buffer.h), which is a part of one, or all of it.
//
// Access is kLocalOnly. Peers get leases (exports.h), or regions of their own that last for one
// call.
//
// Threads: the engine's, but for the constructor and bytes().
// Lifetime: the memory outlives it; it is destroyed, or DropRegions() is called, before the
//   Transport, when no operation on it is outstanding.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/connection.h"
#include "transport/region.h"

namespace weft {

class LocalMemory {
 public:
  // Who hands parts of the memory out, and must not reuse those that are pinned.
  class Keeper {
   public:
    virtual void Pin(size_t offset) = 0;
    virtual void Unpin(size_t offset) = 0;

   protected:
    ~Keeper() = default;
  };

  // `keeper` may be null: the memory is the application's, who keeps it as long as it is told to.
  explicit LocalMemory(MutableByteSpan memory, Keeper* keeper = nullptr)
      : memory_(memory), keeper_(keeper) {}
  LocalMemory(const LocalMemory&) = delete;
  LocalMemory& operator=(const LocalMemory&) = delete;

  MutableByteSpan bytes() const { return memory_; }

  // The region of this connection's path. The first time on a path it registers (not for the hot
  // path: call it once when the connection opens); errors are RemoteAccess::Register()'s.
  // REQUIRES: the connection is open.
  absl::StatusOr<const Region*> For(Connection& connection) {
    std::unique_ptr<Region>& region = regions_[connection.memory().path_number()];
    if (region == nullptr) [[unlikely]] {
      absl::StatusOr<std::unique_ptr<Region>> made =
          connection.memory().Register(memory_, Access::kLocalOnly);
      if (!made.ok()) return made.status();
      region = *std::move(made);
    }
    return region.get();
  }

  // Closes the registrations; For() would make new ones.
  void DropRegions() {
    for (std::unique_ptr<Region>& region : regions_) region.reset();
  }

  // Keeps the pool's buffer in which `offset` lies out of other hands, also when its Buffer is
  // destroyed, until Unpin(): for memory that a peer may still touch (RemoteAccess::Reclaim()).
  // Pins count. Nothing to do for an application's own memory. REQUIRES: the Buffer lives, at
  // Pin().
  void Pin(size_t offset) {
    if (keeper_ != nullptr) keeper_->Pin(offset);
  }
  void Unpin(size_t offset) {
    if (keeper_ != nullptr) keeper_->Unpin(offset);
  }

 private:
  const MutableByteSpan memory_;
  Keeper* const keeper_;
  std::array<std::unique_ptr<Region>, kMaxPathNumbers> regions_;  // [path_number()]
};

}  // namespace weft
