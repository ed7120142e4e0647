// Leases of one connection, in both directions: what a connection does about grants.
//
// Neither side costs anything before the first lease.
//
// Threads: one engine's. Lifetime: a member of its connection; End() before it is destroyed.
#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/framing/atomic_regions.h"
#include "transport/leases/export_table.h"
#include "transport/leases/granted_leases.h"
#include "transport/leases/held_leases.h"

namespace weft {

class ConnectionLeases final : private HeldLeases::Host, private GrantedLeases::Host {
 public:
  // What leases need of their connection.
  class Host {
   public:
    // Brings it to the peer's OnGrant().
    virtual void SendGrant(ByteSpan grant) = 0;
    // EndOverdue() soon, where users may be told something.
    virtual void EndOverdueSoon() = 0;
    // For this connection's peer alone.
    virtual absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                                  Access access) = 0;
    // As RemoteAccess, and Connection::Close().
    virtual bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) = 0;
    virtual uint32_t peer_tenant() const = 0;
    virtual uint64_t peer_client() const = 0;  // PathInfo::client
    virtual void EndConnection(std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  // `exports` may be null: no leases.
  ConnectionLeases(Host* host, ExportTable* exports) : host_(host), exports_(exports) {}
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
  // Its peer has asked for leases.
  bool has_granted() const { return granted_ != nullptr; }

 private:
  struct Dispatch;

  GrantedLeases& granted();
  // HeldLeases::Host, GrantedLeases::Host
  void SendGrant(const GrantMessage& message) override;
  void OnLeasesOverdue() override { host_->EndOverdueSoon(); }
  absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                        Access access) override {
    return host_->RegisterLease(memory, access);
  }
  void AllowAtomics(Region* region) override { atomic_regions_.Add(region); }
  void ForbidAtomics(Region* region) override { AtomicRegions::Remove(region); }
  bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) override {
    return host_->ReclaimLease(std::move(region), op);
  }
  uint32_t peer_tenant() const override { return host_->peer_tenant(); }
  uint64_t peer_client() const override { return host_->peer_client(); }
  void EndConnection(std::string_view why) override { host_->EndConnection(why); }

  Host* const host_;
  ExportTable* const exports_;
  AtomicRegions atomic_regions_;  // outlives the leases in it
  std::unique_ptr<HeldLeases> held_;
  std::unique_ptr<GrantedLeases> granted_;
};

}  // namespace weft
