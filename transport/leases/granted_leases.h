// The owner's side of leases, for one connection: checks what the peer asks for, opens a
// registration for each lease, and closes it when the lease is over.
//
//   lease state   set by                               left for
//   kOpen         a good handle                        kRevoked: its export is revoked
//                                                      kClosing: its time is over, Return
//   kRevoked      the holder was told; what it has     kClosing: the grace or its time is over,
//                 begun goes on                        Return
//   kClosing      the registration is closed; memory   gone, when it is reclaimed
//                 may be pinned
//
// The registration is made for one lease of one connection, under a key of its own (a random one,
// where the provider lets us choose): no peer can use another one's, and the end of one is not the
// end of others. A renewal keeps it, so that what the holder has under way goes on.
//
// Threads: one engine's. Lifetime: a member of its connection; End() before it is destroyed.
// Errors: what may be answered is answered; an error from a function means that the peer has broken
//   the rules, and its connection is to be ended.
// Invariants: at most kMaxLeases, those that are still pinned included.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "core/slab.h"
#include "core/timer_wheel.h"
#include "transport/leases/export_table.h"
#include "transport/leases/grant_message.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

class GrantedLeases {
 public:
  // The connection.
  class Host {
   public:
    virtual void SendGrant(const GrantMessage& message) = 0;
    // For this connection's peer alone.
    virtual absl::StatusOr<std::unique_ptr<Region>> RegisterLease(MutableByteSpan memory,
                                                                  Access access) = 0;
    // The peer may change it by atomics too, until it is destroyed or forbidden.
    virtual void AllowAtomics(Region* region) = 0;
    virtual void ForbidAtomics(Region* region) = 0;
    // RemoteAccess::Reclaim().
    virtual bool ReclaimLease(std::unique_ptr<Region> region, Operation* op) = 0;
    // RemoteAccess::tenant().
    virtual uint32_t peer_tenant() const = 0;
    // PathInfo::client. It does not change while there is a lease.
    virtual uint64_t peer_client() const = 0;
    // Connection::Close().
    virtual void EndConnection(std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  GrantedLeases(Host* host, ExportTable* exports);
  ~GrantedLeases();
  GrantedLeases(const GrantedLeases&) = delete;
  GrantedLeases& operator=(const GrantedLeases&) = delete;

  absl::Status OnResolve(const GrantResolve& asked);
  absl::Status OnDerive(const GrantDerive& asked);
  // Of a lease that is over: the two have crossed.
  void OnRenew(const GrantRenew& asked);
  void OnReturn(const GrantReturn& given_back);

  // The link is gone, and nobody can touch anything through it any more.
  void End();

  size_t open() const { return leases_.size(); }

 private:
  class GrantedLease final : public ExportedLease, private Timer, private Operation {
   public:
    explicit GrantedLease(GrantedLeases* owner) : owner_(owner) {}

    void Start(SlabHandle handle, TableExport* exported, std::unique_ptr<Region> region,
               uint64_t until_ns, uint64_t handle_expires_ns);
    bool open() const { return state_ == State::kOpen; }
    // Until when it lasts now.
    uint64_t Renew(uint64_t until_ns);
    uint64_t LongestNs() const { return export_->options().max_lease_ns; }
    uint64_t handle_expires_ns() const { return handle_expires_ns_; }
    // Nobody can touch anything through the link any more.
    void CloseWithoutLink();

    // ExportedLease
    void Revoke(uint64_t grace_ns) override;
    void Close() override;
    void EndHolder() override;

   private:
    enum class State : uint8_t { kOpen = 1, kRevoked = 2, kClosing = 3 };

    void OnTimer() override;
    void OnComplete(const absl::Status& status) override;
    void Stop();
    void Finish();

    GrantedLeases* const owner_;
    State state_ = State::kClosing;
    SlabHandle handle_;
    TableExport* export_ = nullptr;
    std::unique_ptr<Region> region_;
    uint64_t until_ns_ = 0;
    uint64_t handle_expires_ns_ = 0;
  };

  TableExport* Find(const RegionHandle& handle);
  absl::Status RefuseBadHandle(uint64_t ask);
  void Refuse(uint64_t ask, absl::StatusCode code);
  absl::Status Grant(const GrantResolve& asked, TableExport* exported);
  uint64_t NowNs() const { return exports_->clock().NowNs(); }

  Host* const host_;
  ExportTable* const exports_;
  Slab<GrantedLease> leases_;
  uint32_t bad_handles_ = 0;
};

}  // namespace weft
