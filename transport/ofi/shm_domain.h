// Links through shared memory: libfabric's shm provider, one endpoint for each link.
//
// The provider has no connections and says nothing when a peer dies. Links make up for the first
// with a greeting (shm_link.h); the caller knows of a death first (its lifeline) and calls
// Abandon(), which closes the endpoint: nothing of the peer is touched any more.
//
// Messages up to the provider's inject size (4 KiB) only: those it copies through shared memory.
// Larger ones would need an answer from the peer. One-sided operations do without the provider
// where the kernel lets us copy (shm_regions.h).
//
// The peer must progress for messages to arrive: its doorbell is rung after every post.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "transport/ofi/fabric_domain.h"
#include "transport/ofi/shm_endpoint.h"
#include "transport/ofi/shm_guard.h"
#include "transport/ofi/shm_link.h"
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
  // Nobody wakes this engine when a peer answers a greeting.
  bool busy() const final {
    return FabricDomain::busy() || !greeting_.empty() || !unanswered_.empty();
  }

 protected:
  int PollConnections() final;
  bool TakeControlBatch(ByteSpan batch) final;

 private:
  friend class ShmLink;

  // Of active links that were closed before the peer had seen them. The peer is about to map this
  // endpoint; 1.17 crashes there when it does not find it. So it stays until the peer has answered,
  // or is gone itself.
  struct Unanswered {
    std::unique_ptr<ShmEndpoint> endpoint;
    std::string peer_endpoint;
    uint64_t nonce;
  };

  ShmDomain(const OfiOptions& options, std::shared_ptr<FabricObjects> objects);

  // --- for links ---
  const std::shared_ptr<FabricObjects>& shared_objects() { return objects(); }
  ShmGuard* guard() const { return guard_.get(); }
  void Forget(ShmLink* link);
  void KeepUntilAnswered(std::unique_ptr<ShmEndpoint> endpoint, std::string peer_endpoint,
                         uint64_t nonce);

  bool IsAnswered(const Unanswered& kept) const;
  void ReviewUnanswered();

  std::shared_ptr<ShmGuard> guard_;
  std::unique_ptr<RegionTable> regions_;
  IntrusiveList<ShmLink, GreetTag> greeting_;         // active links that are not up yet
  absl::flat_hash_map<uint64_t, ShmLink*> expected_;  // passive ones, by nonce
  std::vector<Unanswered> unanswered_;
};

}  // namespace weft
