// Access to the memory of a connection's peer: one-sided reads and writes, atomics, leases, and the
// end of what the peer may reach here. Connection::memory() is one.
//
// Threads, Lifetime: as the connection (connection.h).
// Ordering: a one-sided write that was posted before a message is visible to the peer when that
//   message arrives, but for kWriteUnordered. Reads and writes among themselves complete in any
//   order.
// Sealing: on a sealed connection (SecurityOptions, over verbs and ofi_tcp) memory of Register() is
//   reached by its owner's engine, sealed as messages are: a write completes when it is in the
//   peer's memory, and a message that is sent before that may overtake it (not that of
//   WriteThenSend()). Leases are reached by the card, in the clear, and where one side requires
//   encryption not at all: FAILED_PRECONDITION.
// Completion: every Post that is pending, atomic and Probe completes exactly once, before
//   ConnectionHandler::OnClosed().
// Errors: as the connection's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/lease.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/region_handle.h"

namespace weft {

// Path numbers of one engine (RemoteAccess::path_number()): a half for the paths of sealed
// connections.
inline constexpr uint32_t kMaxPathNumbers = 64;

// Atomics and probes outstanding on one connection: bounds what a peer has to remember.
inline constexpr uint32_t kMaxRequests = 64;

class RemoteAccess {
 public:
  RemoteAccess(const RemoteAccess&) = delete;
  RemoteAccess& operator=(const RemoteAccess&) = delete;

  // --- one-sided --------------------------------------------------------------------------------

  // Registers memory for this connection's path; good for every connection of the same path on
  // the same engine. Not for the hot path. RESOURCE_EXHAUSTED: NetworkOptions::max_region_bytes, or
  // the system's limit on locked memory.
  virtual absl::StatusOr<std::unique_ptr<Region>> Register(MutableByteSpan memory,
                                                           Access access) = 0;

  // Moves remote.length (>= 1) bytes of each transfer between local->memory()[local_offset...] and
  // the peer's region. All transfers (1..kMaxBatchTransfers) are posted or none, with one doorbell
  // where the provider can. `op` completes once, when all have, which they do in any order: with
  // OK, or with the error of the first that failed (others may have been carried out). Each counts
  // as one of max_outstanding_operations. The array may go when this returns. RESOURCE_EXHAUSTED:
  // too many are outstanding; OnWritable() will come. INVALID_ARGUMENT: no transfer, too many, or
  // one that is wrong.
  virtual absl::StatusOr<Posted> Post(TransferKind kind, absl::Span<const Transfer> transfers,
                                      Operation* op) = 0;

  // Moves local.size() bytes (>= 1), remote.length of them, inside the call: true, where the peer's
  // region is mapped into this process, grants it, and the bytes are few. False: nothing is said of
  // why, and some of them may have been moved; Post() carries it out, or has the error. `local`
  // need not be registered, and nothing is outstanding afterwards.
  virtual bool MoveNow(TransferKind kind, MutableByteSpan local, const RemoteSpan& remote) = 0;

  // Writes, then tells: kWrite is posted and `message` (1..eager_bytes() bytes) is committed and
  // flushed behind it, both or neither. The peer's OnMessage() finds the writes in its memory.
  // RESOURCE_EXHAUSTED: no room for one of both; OnWritable() will come.
  // REQUIRES: no open reservation.
  virtual absl::StatusOr<Posted> WriteThenSend(absl::Span<const Transfer> transfers,
                                               ByteSpan message, Operation* op) = 0;

  // Ends remote access to a region of which only this connection's peer was told. True: its memory
  // is reclaimed. False: it is pinned, by what had begun, and op->OnComplete(OK) comes when nothing
  // can touch it any more: when a fence has passed (ofi_tcp: the peer's provider has
  // acknowledged a batch that was sent behind), elsewhere when the peer has answered two probes
  // (after the first, nothing that it wrote is on its way to us; after the second, nothing that it
  // read is on its way to it), or when the connection is gone. Whatever the connection's state.
  virtual bool Reclaim(std::unique_ptr<Region> region, Operation* op) = 0;

  // A small number that stands for this connection's path and device on this engine: a Region of
  // one connection is good for all connections with the same number. From OnOpen() on. Those of a
  // server's engine `number`: from number * kMaxPathNumbers on, so many.
  uint32_t path_number() const { return path_number_; }

  // The peer's card carries reads out, behind all writes that were posted on this connection
  // before: the end of a read shows that they have arrived, and no processor of the peer's has a
  // part in it. (verbs; fi_endpoint(3) calls it FI_ORDER_RAW.) From OnOpen() on.
  bool reads_prove_writes() const { return reads_prove_writes_; }

  // --- leases on the peer's memory (lease.h) ----------------------------------------------------

  // Asks for a lease on what `handle` names, for `lease_ns` (kMinLeaseNs..kMaxLeaseNs; the owner
  // may give less). `layout`: what the memory is taken for (ExportOptions::layout). The outcome
  // comes through the lease. An error here means that it is not touched: FAILED_PRECONDITION when
  // not open, INVALID_ARGUMENT, RESOURCE_EXHAUSTED for more than kMaxLeases, UNIMPLEMENTED.
  // REQUIRES: lease->state() == kIdle.
  virtual absl::Status Resolve(const RegionHandle& handle, uint64_t layout, uint64_t lease_ns,
                               Lease* lease) = 0;
  // Asks for more time. OnGranted() or OnEnded() follow; a renewal never shortens a lease.
  // FAILED_PRECONDITION: not open, or one is under way. REQUIRES: kHeld on this connection.
  virtual absl::Status Renew(uint64_t lease_ns, Lease* lease) = 0;
  // Gives it back: OnEnded(CANCELLED) comes from inside. What is outstanding may fail.
  // REQUIRES: not kIdle, on this connection.
  virtual void Return(Lease* lease) = 0;
  // Asks the peer, who owns `handle`, for one to a part of it, with fewer rights, for a time (0: as
  // long as `handle`), that this side may pass on. Errors as Resolve().
  virtual absl::Status Derive(const RegionHandle& handle, uint64_t offset, uint64_t length,
                              Rights rights, uint64_t lifetime_ns, Derivation* derivation) = 0;

  // Whose handles this connection's peer may use; kDefaultTenant until somebody says otherwise. The
  // acceptor does, who knows the peer; before OnOpen() returns.
  uint32_t tenant() const { return tenant_; }
  void set_tenant(uint32_t tenant) { tenant_ = tenant; }
  // The peer has asked for leases on memory of this side, at some time.
  virtual bool peer_uses_leases() const { return false; }

  // --- answered by the peer's transport ---------------------------------------------------------

  // Change the 8 bytes at `remote` (length 8), an unsigned number in the peer's own byte order, in
  // a region that the peer has registered with kRemoteReadWrite, at an address that is a multiple
  // of 8. operation.h says what executes them, the same on every path.
  // Ordering: executed one after the other as posted; after every message of up to eager_bytes()
  // committed before has been delivered, and before any committed later; after every write posted
  // before. With those of other connections, other engines, and std::atomic_ref of the peer's own
  // threads they are atomic in one order; with one-sided writes they are not.
  // Completion: in the order of posts, after the messages that the peer committed before executing.
  // A handle that the peer does not grant is PERMISSION_DENIED, whatever is wrong with it.
  // Here: INVALID_ARGUMENT for another length; RESOURCE_EXHAUSTED: kMaxRequests are outstanding, or
  // as Reserve(); UNIMPLEMENTED: the peer's release does not know them. Leaves as messages do.
  // REQUIRES: no open reservation.
  virtual absl::Status FetchAdd(const RemoteSpan& remote, uint64_t operand,
                                AtomicOperation* op) = 0;
  virtual absl::Status CompareSwap(const RemoteSpan& remote, uint64_t expected, uint64_t desired,
                                   AtomicOperation* op) = 0;

  // A round trip on this path, answered by the peer's transport without its program. Ordering,
  // bounds and errors as above.
  virtual absl::Status Probe(Operation* op) = 0;

 protected:
  RemoteAccess() = default;
  ~RemoteAccess() = default;

  uint32_t path_number_ = 0;
  bool reads_prove_writes_ = false;

 private:
  uint32_t tenant_ = kDefaultTenant;
};

}  // namespace weft
