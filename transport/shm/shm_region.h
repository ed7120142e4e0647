// The Region of shm domains: nothing to register, but a place in the table that peers look into.
//
// Threads: the engine's. Lifetime: as Region.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/region.h"

namespace weft {

class ShmDomain;

class ShmRegion final : public Region {
 public:
  static absl::StatusOr<std::unique_ptr<ShmRegion>> Open(ShmDomain* domain, MutableByteSpan memory,
                                                         Access access);
  ~ShmRegion() override { Close(); }

  // Ends access, as the destructor does and RegionTable::Withdraw() says. False: a peer holds on.
  bool Close();
  bool BelongsTo(const ShmDomain* domain) const { return domain_ == domain; }

 private:
  ShmRegion(ShmDomain* domain, MutableByteSpan memory, Access access, uint64_t key)
      : Region(memory, RemoteSpan{key, 0, memory.size()}), domain_(domain), access_(access) {}

  ShmDomain* const domain_;
  const Access access_;
  bool open_ = true;
};

}  // namespace weft
