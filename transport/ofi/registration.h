// Registrations of one domain: random keys, counted opening and closing, and Regions on top.
//
// Keys are 64 random bits from the kernel: a peer that was not told one does not find it. (Some
// providers would otherwise hand out 1, 2, 3...) A collision is answered by libfabric with
// -FI_ENOKEY and a new draw. RDMA devices choose their keys themselves: 32 bits, and guessable.
//
// Threads: the engine's. Lifetime: the registrar outlives what it opened, and its domain outlives
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/region.h"

namespace weft {

class Registrar {
 public:
  Registrar(fid_domain* domain, const fi_info& info, LinkDomainStats* stats)
      : domain_(domain),
        counts_from_address_((info.domain_attr->mr_mode & FI_MR_VIRT_ADDR) != 0),
        sinks_are_writable_(info.ep_attr->protocol == FI_PROTO_IWARP),
        stats_(stats) {}

  // RESOURCE_EXHAUSTED when the system's limit on locked memory is in the way.
  absl::StatusOr<RegistrationPtr> Open(MutableByteSpan memory, Access access);
  // For messages only: not for one-sided operations, not even as their local end (iWARP would let
  // peers write into memory that remote data is read into).
  absl::StatusOr<RegistrationPtr> OpenForMessages(MutableByteSpan memory);
  // What peers count from in a region that begins at `memory`: its address where the provider
  // wants that, else 0.
  uint64_t BaseOf(MutableByteSpan memory) const {
    return counts_from_address_ ? reinterpret_cast<uint64_t>(memory.data()) : 0;
  }
  // Whether a region of this access needs a second registration to be read into: on iWARP the local
  // end of a read is writable by peers that know its key, which is not what kRemoteRead grants.
  bool NeedsSink(Access access) const {
    return sinks_are_writable_ && access == Access::kRemoteRead;
  }
  // Nothing to do for null.
  void Close(RegistrationPtr registration);

 private:
  absl::StatusOr<RegistrationPtr> OpenWith(MutableByteSpan memory, uint64_t rights);

  fid_domain* const domain_;
  const bool counts_from_address_;
  const bool sinks_are_writable_;
  LinkDomainStats* const stats_;
};

// The Region of libfabric's domains.
class FabricRegion final : public Region {
 public:
  static absl::StatusOr<std::unique_ptr<FabricRegion>> Open(Registrar* registrar,
                                                            MutableByteSpan memory, Access access);
  ~FabricRegion() override;

  // For the local end of a write, and of a read. The first read into a region that peers may only
  // read registers it once more where NeedsSink() says so.
  void* source_descriptor() const { return fi_mr_desc(registration_.get()); }
  absl::StatusOr<void*> SinkDescriptor() const;
  // Ends all access, as the destructor does.
  void Close();
  bool BelongsTo(const Registrar* registrar) const { return registrar_ == registrar; }

 private:
  FabricRegion(Registrar* registrar, RegistrationPtr registration, MutableByteSpan memory,
               Access access);

  Registrar* const registrar_;
  const Access access_;
  RegistrationPtr registration_;
  mutable RegistrationPtr sink_;  // where reading into the region needs one of its own
};

}  // namespace weft
