// Registrations of one domain: random keys, counted opening and closing, and Regions on top.
//
// Keys are 64 random bits from the kernel: a peer that was not told one does not find it. (Some
// providers would otherwise hand out 1, 2, 3...) A collision is answered by libfabric with
// -FI_ENOKEY and a new draw.
//
// Threads: the engine's. Lifetime: the registrar outlives what it opened, and its domain outlives
// it.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/region.h"

namespace weft {

class Registrar {
 public:
  Registrar(fid_domain* domain, LinkDomainStats* stats) : domain_(domain), stats_(stats) {}

  // RESOURCE_EXHAUSTED when the system's limit on locked memory is in the way.
  absl::StatusOr<RegistrationPtr> Open(MutableByteSpan memory, Access access);
  void Close(RegistrationPtr registration);

 private:
  fid_domain* const domain_;
  LinkDomainStats* const stats_;
};

// The Region of libfabric's domains.
class FabricRegion final : public Region {
 public:
  FabricRegion(Registrar* registrar, RegistrationPtr registration, MutableByteSpan memory);
  ~FabricRegion() override { registrar_->Close(std::move(registration_)); }

  void* descriptor() const { return fi_mr_desc(registration_.get()); }
  bool BelongsTo(const Registrar* registrar) const { return registrar_ == registrar; }

 private:
  Registrar* const registrar_;
  RegistrationPtr registration_;
};

}  // namespace weft
