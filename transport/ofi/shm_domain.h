// Links through shared memory: libfabric's shm provider, one RDM endpoint for each domain.
//
// There is no connection. Both sides insert the other's name into their address vector and are up;
// the provider exchanges what it needs with the first message, for which the peer must progress:
// so the peer's doorbell is rung after every post.
//
// The provider says nothing when a peer dies. The caller knows first (its lifeline) and calls
// Abandon(); from then on nothing is posted to that peer.
//
// Messages up to the provider's inject size (4 KiB) only: it copies them through shared memory.
// One-sided operations do not use the provider where the kernel lets us copy (shm_regions.h).
//
// Addresses stay in the vector until the domain closes: the same two engines meet again and again,
// and libfabric 1.17 keeps stale state for an address that was removed (quirks.h). The provider
// holds at most 256 peers.
//
// Threads: the engine's.
#pragma once

#include <memory>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/shm_keeper.h"
#include "transport/ofi/shm_name.h"
#include "transport/ofi/shm_regions.h"

namespace weft {

class ShmDomain final : public FabricDomain {
 public:
  static absl::StatusOr<std::unique_ptr<LinkDomain>> Open(const OfiOptions& options);
  ~ShmDomain() override;

  absl::StatusOr<std::unique_ptr<Link>> Connect(const LinkPeer& peer, LinkHandler* handler) final;
  absl::StatusOr<std::unique_ptr<Link>> Accept(const LinkPeer& peer, LinkHandler* handler) final;

  bool Arm() final { return !HasPending() && !HasCompletions(); }
  int descriptor() const final { return -1; }

  // For links.
  fid_ep* endpoint() const { return endpoint_.get(); }
  void Drain(FabricLink* link, uint64_t limit_ns) { DrainPosted(link, limit_ns); }

 private:
  // The provider's limit.
  static constexpr size_t kMaxPeers = 256;

  ShmDomain(const OfiOptions& options, Objects objects);

  absl::Status OpenEndpoint();
  absl::StatusOr<std::unique_ptr<Link>> OpenLink(const LinkPeer& peer, LinkHandler* handler);
  absl::StatusOr<fi_addr_t> Resolve(const std::string& address);

  AddressVectorPtr addresses_;
  EndpointPtr endpoint_;
  std::unique_ptr<ShmOwnership> ownership_;
  std::unique_ptr<RegionTable> regions_;
  absl::flat_hash_map<std::string, fi_addr_t> known_;
};

}  // namespace weft
