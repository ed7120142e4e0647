// A link through shared memory, with an endpoint of its own on either side.
//
//   active   opens its endpoint, maps the peer's, greets until the provider takes it -> up
//   passive  opens its endpoint and waits; the greeting comes -> maps the peer's -> up
//
// Once both have mapped each other, the files have done their duty and are removed (where the
// version allows), so that a killed process leaves nothing.
//
// Threads: the engine's.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/ofi/fabric_link.h"
#include "transport/ofi/shm_endpoint.h"
#include "transport/ofi/shm_guard.h"
#include "transport/ofi/shm_name.h"
#include "transport/ofi/shm_regions.h"

namespace weft {

class ShmDomain;

struct GreetTag;

class ShmLink final : public FabricLink, public ListNode<GreetTag> {
 public:
  ShmLink(ShmDomain* domain, LinkHandler* handler, const LinkPeer& peer, ShmRole role);
  ~ShmLink() override;

  absl::Status Start();

  // Active: tries to greet. True when that is settled.
  bool TryGreet();
  // Passive: the greeting has come, or the peer went away before.
  void OnGreeted();
  void OnPeerGone() { Fail(absl::UnavailableError("the peer gave up connecting")); }

  uint64_t nonce() const { return nonce_; }

 private:
  int PostOperation(OperationRecord* record) override;
  bool MoveAtOnce(bool is_read, absl::Span<const Transfer> transfers) override;
  bool closing_reclaims() const override;
  void StopProvider(bool peer_is_gone) override;
  absl::Status MeetPeer();

  // Constant after construction.
  ShmDomain* const shm_;
  const ShmRole role_;
  const uint64_t nonce_;
  const int32_t peer_process_id_;
  const std::string peer_domain_;
  const std::string peer_endpoint_;

  std::unique_ptr<ShmEndpoint> endpoint_;
  std::unique_ptr<PeerRegions> regions_;  // null: one-sided operations go through the provider
  std::unique_ptr<ShmWatch> watch_;
  bool met_ = false;  // the peer's endpoint is mapped
};

}  // namespace weft
