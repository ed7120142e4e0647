// Registrations of one domain: random keys, counted opening and closing, and Regions on top.
//
// Keys are 64 random bits from the kernel: a peer that was not told one does not find it. (Some
// providers would otherwise hand out 1, 2, 3...) A collision is answered by libfabric with
// -FI_ENOKEY and a new draw. RDMA devices choose their keys themselves: 32 bits, and guessable.
//
// A key source can be plugged in: it makes the keys of regions for remote access, and is told when
// they come and go.
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

class KeySource {
 public:
  virtual absl::StatusOr<uint64_t> NewKey() = 0;
  virtual void Publish(uint64_t key, MutableByteSpan memory, Access access) = 0;
  virtual void Discard(uint64_t key) = 0;  // was not published
  virtual void Withdraw(uint64_t key) = 0;

 protected:
  ~KeySource() = default;
};

class Registrar {
 public:
  // `memory_mode`: the provider's FI_MR_... bits.
  Registrar(fid_domain* domain, int memory_mode, LinkDomainStats* stats)
      : domain_(domain), memory_mode_(memory_mode), stats_(stats) {}

  // Before the first region; outlives them all.
  void UseKeys(KeySource* keys) { keys_ = keys; }

  // RESOURCE_EXHAUSTED when the system's limit on locked memory is in the way.
  absl::StatusOr<RegistrationPtr> Open(MutableByteSpan memory, Access access);
  // For messages only: not for one-sided operations, not even as their local end (iWARP would let
  // peers write into memory that remote data is read into). Close with Access::kLocalOnly.
  absl::StatusOr<RegistrationPtr> OpenForMessages(MutableByteSpan memory);
  // What peers count from in a region that begins at `memory`: its address where the provider
  // wants that, else 0.
  uint64_t BaseOf(MutableByteSpan memory) const {
    return (memory_mode_ & FI_MR_VIRT_ADDR) != 0 ? reinterpret_cast<uint64_t>(memory.data()) : 0;
  }
  // REQUIRES: `access` as it was opened with.
  void Close(RegistrationPtr registration, Access access);

 private:
  bool Publishes(Access access) const { return keys_ != nullptr && access != Access::kLocalOnly; }
  absl::StatusOr<uint64_t> NewKey(Access access);

  absl::StatusOr<RegistrationPtr> OpenWith(MutableByteSpan memory, uint64_t rights, Access access);

  fid_domain* const domain_;
  const int memory_mode_;
  LinkDomainStats* const stats_;
  KeySource* keys_ = nullptr;
};

// The Region of libfabric's domains.
class FabricRegion final : public Region {
 public:
  FabricRegion(Registrar* registrar, RegistrationPtr registration, MutableByteSpan memory,
               Access access);
  ~FabricRegion() override { registrar_->Close(std::move(registration_), access_); }

  void* descriptor() const { return fi_mr_desc(registration_.get()); }
  bool BelongsTo(const Registrar* registrar) const { return registrar_ == registrar; }

 private:
  Registrar* const registrar_;
  const Access access_;
  RegistrationPtr registration_;
};

}  // namespace weft
