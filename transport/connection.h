// A Connection is an ordered, reliable path to one peer: messages, one-sided reads and writes of
// its memory, leases. The same over shared memory, TCP, RDMA and the simulated network.
//
//   Connection states, and who moves them:
//     kConnecting  Connect() or an arriving peer. -> kOpen, kClosed
//     kOpen        the transport, both sides ready; OnOpen() tells. -> kClosed
//     kClosed      Close(), the peer, or a failure; OnClosed() tells once, and is the last word.
//
// Threads: all of this belongs to one engine and is used on the thread that drives it (engine.h).
//   Callbacks come from Transport::Poll(), never from inside the call that caused them.
// Lifetime: a Connection belongs to its Transport. The pointer is good until OnClosed() returns.
//   Handlers are the caller's and outlive the connection (until OnClosed() has returned).
// Ordering: messages arrive whole and once. Those of up to eager_bytes() arrive in the order of
//   their Commit(); larger ones in that order among themselves. A small message may overtake a
//   large one that is still being moved, so that 64 MiB never hold up 64 bytes; a large one
//   overtakes nothing. A one-sided write that was posted before a message is visible to the peer
//   when that message arrives. Reads and writes among themselves complete in any order.
// Completion: every message is delivered to the peer's OnMessage(), or the connection closes.
//   Every Post that is pending, atomic and Probe completes exactly once, before OnClosed().
// Errors, by what to do next:
//   INVALID_ARGUMENT    the call is wrong: fix it. Nothing happened.
//   RESOURCE_EXHAUSTED  a limit is reached: wait for OnWritable(), then try again.
//   FAILED_PRECONDITION not open (yet, or any more).
//   UNAVAILABLE         the peer or the path is gone: connect again.
//   DATA_LOSS           the peer broke the protocol; the connection is closed.
//   CANCELLED           this side closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/lease.h"
#include "transport/open_batch.h"
#include "transport/operation.h"
#include "transport/path.h"
#include "transport/region.h"
#include "transport/region_handle.h"

namespace weft {

class Connection;

// The largest message, in bytes. Bounds what one peer can make this process allocate at once;
// larger payloads belong in one-sided transfers.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;

// Bound of Connection::path_number().
inline constexpr uint32_t kMaxPathNumbers = 32;

// Atomics and probes outstanding on one connection: bounds what a peer has to remember.
inline constexpr uint32_t kMaxRequests = 64;

// What a connection tells its user. All calls come on the engine's thread.
class ConnectionHandler {
 public:
  // Messages can be sent from now on. Called at most once, before any OnMessage.
  virtual void OnOpen(Connection& connection) = 0;

  // `message` is valid until the call returns. Send, Close and other connections' calls are
  // allowed inside. None comes after Close(), not even of those that were there already.
  virtual void OnMessage(Connection& connection, ByteSpan message) = 0;

  // After Reserve() answered RESOURCE_EXHAUSTED: it is worth trying again.
  virtual void OnWritable(Connection& connection) { (void)connection; }

  // The end, exactly once, for every connection, also one that never opened. `why` is never OK.
  // The connection is gone when this returns.
  virtual void OnClosed(Connection& connection, const absl::Status& why) = 0;

 protected:
  ~ConnectionHandler() = default;
};

// What a connection has done. Counts since it opened; readable on the engine's thread.
struct ConnectionStats {
  uint64_t messages_sent = 0;  // handed to the provider
  uint64_t messages_received = 0;
  uint64_t batches_sent = 0;  // fabric messages; messages_sent / batches_sent is the coalescing
  uint64_t batches_received = 0;
  uint64_t large_sent = 0;  // messages moved by one-sided transfer
  uint64_t large_received = 0;
  uint64_t credit_stalls = 0;  // times a batch found no credit, or no room in the link
};

// Where a message that is already queued is to be written, and its number (Commit()).
struct MessageSpace {
  std::byte* data = nullptr;  // null: refused
  uint64_t number = 0;
};

// An ordered, reliable path to one peer.
class Connection {
 public:
  enum class State : uint8_t { kConnecting = 1, kOpen = 2, kClosed = 3 };

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // --- messages ---------------------------------------------------------------------------------

  // Space for one message of up to `bytes` (0..kMaxMessageBytes), in registered memory: what is
  // written there is sent from there. At most one reservation is open at a time; end it with
  // Commit() or Abandon() before returning to the engine.
  // RESOURCE_EXHAUSTED: no credit or no slot now; OnWritable() will come.
  virtual absl::StatusOr<std::byte*> Reserve(size_t bytes) = 0;

  // Queues the reserved message, `bytes` long (<= reserved). Small messages committed in one turn
  // of the engine share a fabric message; it leaves at Flush() or at the end of the turn.
  // Returns the message's number: 0, 1, 2, ... in the order of commits.
  // REQUIRES: an open reservation.
  virtual uint64_t Commit(size_t bytes) = 0;

  // Gives the reservation back; nothing is sent.
  virtual void Abandon() = 0;

  // Reserve() and Commit() in one, for a message of `bytes` bytes, no less: the caller writes them
  // before it asks anything else of this connection and before it returns to the engine. Refused
  // (data == nullptr) where Reserve() would be; what it would say is then of no interest.
  // REQUIRES: no open reservation; bytes < 2^63.
  MessageSpace Append(size_t bytes) {
    const size_t frame_bytes = FrameBytes(bytes);
    if (!batch_.Fits(frame_bytes)) [[unlikely]]
      return AppendSlowly(bytes);
    batch_.ClearPaddingOfNext(frame_bytes);
    return {batch_.Append(bytes, FrameKind::kMessage), committed_++};
  }

  // Sends what is committed now instead of at the end of the turn.
  virtual void Flush() = 0;

  // The number of the first message that has not been handed to the provider: messages from this
  // number on surely never reached the peer; those before it may have. Good inside OnClosed().
  virtual uint64_t first_unsent() const = 0;

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

  // Writes, then tells: kWrite is posted and `message` (1..eager_bytes() bytes) is committed and
  // flushed behind it, both or neither. The peer's OnMessage() finds the writes in its memory.
  // RESOURCE_EXHAUSTED: no room for one of both; OnWritable() will come.
  // REQUIRES: no open reservation.
  virtual absl::StatusOr<Posted> WriteThenSend(absl::Span<const Transfer> transfers,
                                               ByteSpan message, Operation* op) = 0;

  // Ends remote access to a region of which only this connection's peer was told. True: its memory
  // is reclaimed. False: it is pinned, by what had begun, and op->OnComplete(OK) comes when nothing
  // can touch it any more: when the peer has answered two probes (after the first, nothing that it
  // wrote is on its way to us; after the second, nothing that it read is on its way to it), or when
  // the connection is gone. Whatever the connection's state.
  virtual bool Reclaim(std::unique_ptr<Region> region, Operation* op) = 0;

  // A small number that stands for this connection's path and device on this engine: a Region of
  // one connection is good for all connections with the same number. < kMaxPathNumbers. From
  // OnOpen() on.
  virtual uint32_t path_number() const = 0;

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
  virtual uint32_t tenant() const = 0;
  virtual void set_tenant(uint32_t tenant) = 0;

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

  // --- life -------------------------------------------------------------------------------------

  // Ends the connection: what was committed is handed to the provider where it takes it at once,
  // outstanding operations complete with CANCELLED, the peer sees UNAVAILABLE, OnClosed(CANCELLED)
  // follows from Poll(). Idempotent. `why` travels to the peer as text where the path is up.
  virtual void Close(std::string_view why) = 0;

  // --- facts ------------------------------------------------------------------------------------

  virtual State state() const = 0;
  virtual const PathInfo& path() const = 0;
  // Every path considered, in the order tried, with reasons. Good from OnOpen() or OnClosed() on.
  virtual const std::vector<PathCandidate>& candidates() const = 0;
  // The peer's hello; from OnOpen() on.
  virtual const std::string& peer_hello() const = 0;
  // Messages reserved with up to this size travel in one frame; larger ones by one-sided transfer.
  // Good from OnOpen() on.
  virtual size_t eager_bytes() const = 0;
  virtual const ConnectionStats& stats() const = 0;

 protected:
  Connection() = default;
  virtual ~Connection() = default;

  // Append() of what does not fit into the open batch.
  virtual MessageSpace AppendSlowly(size_t bytes) {
    const absl::StatusOr<std::byte*> space = Reserve(bytes);
    if (!space.ok()) return {};
    return {*space, Commit(bytes)};
  }

  // Of who makes batches; others leave it closed. What is in it leaves at the end of the turn.
  OpenBatch batch_;
  uint64_t committed_ = 0;  // messages
};

}  // namespace weft
