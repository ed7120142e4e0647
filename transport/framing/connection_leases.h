// Leases of one connection, in both directions: what FramedConnection does about grants.
//
// Neither side costs anything before the first lease.
//
// Threads: one engine's. Lifetime: a member of its connection; End() before it is destroyed.
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/framing/atomic_regions.h"
#include "transport/leases/export_table.h"
#include "transport/leases/granted_leases.h"
#include "transport/leases/held_leases.h"

namespace weft {

class FramedConnection;

class ConnectionLeases final : private HeldLeases::Host, private GrantedLeases::Host {
 public:
  // `exports` may be null: no leases.
  ConnectionLeases(FramedConnection* connection, ExportTable* exports)
      : connection_(connection), exports_(exports) {}
  ConnectionLeases(const ConnectionLeases&) = delete;
  ConnectionLeases& operator=(const ConnectionLeases&) = delete;

  bool available() const { return exports_ != nullptr; }
  // What this side holds of the peer's. REQUIRES: available().
  HeldLeases& held();
  // What the peer may change by atomics, of what it holds of this side's.
  AtomicRegions& atomic_regions() { return atomic_regions_; }

  // A message of the peer. An error: it has broken the rules.
  absl::Status OnGrant(ByteSpan grant);
  void EndOverdue();
  // REQUIRES: the link is gone.
  void End(const absl::Status& why);

 private:
  struct Dispatch;

  GrantedLeases& granted();
  // HeldLeases::Host, GrantedLeases::Host
  void SendGrant(const GrantMessage& message) override;
  void OnLeasesOverdue() override;
  absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                        Access access) override;
  void AllowAtomics(Region* region) override { atomic_regions_.Add(region); }
  void ForbidAtomics(Region* region) override { AtomicRegions::Remove(region); }
  bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) override;
  uint32_t peer_tenant() const override;
  void EndConnection(std::string_view why) override;

  FramedConnection* const connection_;
  ExportTable* const exports_;
  AtomicRegions atomic_regions_;  // outlives the leases in it
  std::unique_ptr<HeldLeases> held_;
  std::unique_ptr<GrantedLeases> granted_;
};

}  // namespace weft
