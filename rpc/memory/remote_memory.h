// RemoteMemory is another process's memory, read and written in place: what a weft.RemoteRegion in
// a message is good for.
//
//   auto pages = weft::RemoteMemory::Open(*channel, reply.pages());
//   auto buffer = channel->AllocateBuffer(8192);
//   absl::Status status = (*pages)->Read(page * 8192, (*buffer)->slice());
//
// It travels over the channel's connection, and belongs to its engine as the channel does. Open()
// exchanges the handle for a lease (transport/lease.h), which is renewed while it is used; that of
// an idle one lapses, and the next use asks again: one round trip more. After the connection is
// lost, the next use connects and asks again. What cannot be posted now (no connection, no lease
// yet, too many outstanding) waits here in order, max_waiting operations at most.
//
// An operation may take longer than a lease: while one is under way the lease is renewed by a timer
// of the engine, which has to be driven meanwhile. That ends with the handle: when it expires or is
// revoked, or when this process stands still for half of a lease, the owner closes what is under
// way; over a card, that ends the connection.
//
// Bounds and rights are checked here first, against what the handle says of itself, and the time
// against the lease: an honest program never meets the owner's, or the network card's, refusal,
// which on verbs and ofi_tcp would end the connection.
//
// Ordering: reads and writes complete in any order among themselves. Write, then notify: a call on
//   the same channel that is started after Write() has been accepted finds the bytes there, without
//   waiting for the write's end; so does the handler of a one-way message:
//       memory->Write(0, record, done);        // from one thread,
//       stub.Changed(request, &reply, ...);    // one after the other
//   An atomic sees every write that was accepted before it. Neither holds for WriteUnordered(),
//   behind whose end alone others find its bytes. A Read that has to see a Write is started after
//   that one's end. (After the end of a Write the local memory may be reused; that
//   it has arrived is proven by the end of a WriteAcknowledged, the reply to a call, or an atomic's
//   end.)
// Atomics change 8 bytes at a multiple of 8, a uint64_t in the owner's byte order. They are carried
//   out by the owner's engine on every path (transport/operation.h): atomic with each other and
//   with std::atomic_ref in the owner's process, not with one-sided writes.
// Several engines: of a channel on several, this is the engine's of the thread that has opened it,
//   and operations go over that one's connection, from whichever thread. Large transfers of memory
//   that BufferOf() has made are cut into stripes, which move over the connections of all engines,
//   and so by several cards, at the same time: those of 2 MiB and more, by blocking forms,
//   ReadBatch() and Read() with a callback, and WriteUnordered(). An error of one stripe ends the
//   whole with it (kMayHaveRun); other stripes may have been carried out. After a write that was
//   not acknowledged, or that has failed, nothing is cut until that write is known to have arrived:
//   a WriteAcknowledged() or an atomic that has ended since proves it; else the next large transfer
//   moves uncut, and has the owner asked meanwhile. Not cut are transfers behind which messages are
//   in order (Write(), WriteBatch(), WriteAcknowledged() with callbacks), ReadNow(), WriteNow(),
//   what coroutines await, and blocking ones inside of callbacks.
// Torn reads: a Read is not atomic against writes to the same bytes; RemoteArray detects that
//   (rpc/memory/remote_array.h).
//
// Deadlines: an operation ends with DEADLINE_EXCEEDED after RemoteMemoryOptions::timeout_us. One
//   that was not sent (kNotSent) is gone then. One that was (kMayHaveRun) cannot be taken back: the
//   transport still has the local memory, until it is *reclaimed* (WaitReclaimed()), 3 s later at
//   the latest: then the connection is given up. Meanwhile a Buffer of a pool may be destroyed, and
//   is not handed out again; a Buffer of other memory (Buffer::Of()) stays, and that memory with
//   it. What a read would fill may still change.
//
// Threads: any, several at once, as Channel. Callbacks run on the engine's thread.
// Lifetime: the channel outlives it. The local memory stays untouched and its Buffer alive until
//   the operation has ended, or, after its deadline, is reclaimed. The destructor lets what is
//   posted end, ends what waits with CANCELLED, and gives the lease back; every callback has run
//   when it returns. What a callback starts meanwhile ends with FAILED_PRECONDITION. REQUIRES: not
//   destroyed from inside a callback of its engine, or of one that has moved stripes.
// Errors, by what to do next. DeliveryOf() (weft/status.h) says of each error of an operation
//   whether it was not sent, or may have been carried out.
//   INVALID_ARGUMENT    out of bounds, or unaligned: fix the call. Nothing was sent.
//   PERMISSION_DENIED   the handle lacks the right (the text has both); or the owner does not know
//                       the handle: forged, revoked, expired, another tenant's. For good.
//                       With kMayHaveRun the owner had ended the lease, and its word has not come
//                       yet (or it refused a stripe): a later use has it, or another lease.
//   FAILED_PRECONDITION the layouts differ (the text has both); or a blocking form inside a
//                       callback of the same engine; or an operation started while this is
//                       destroyed.
//   ABORTED             the owner has revoked the handle. For good; what was under way may have
//                       been carried out.
//   UNAVAILABLE         no connection, or it was lost; or the lease ended before the operation,
//                       because it was not renewed in time, or the handle has expired.
//   RESOURCE_EXHAUSTED  max_waiting operations wait already, or the engine's inbox is full: try
//                       later. Or the owner's limit of leases is reached.
//   DEADLINE_EXCEEDED   see Deadlines.
//   UNIMPLEMENTED       the owner's release knows no leases.
//   INTERNAL            the local memory cannot be registered, or is another engine's. Nothing was
//                       sent.
//   CANCELLED           this was destroyed before it was sent.
// Invariants: every operation ends exactly once.
#pragma once

#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/function.h"
#include "rpc/coroutine/await.h"
#include "transport/region_handle.h"
#include "transport/slice.h"
#include "weft/channel.h"
#include "weft/memory.pb.h"
#include "weft/status.h"

namespace weft {

class Buffer;
class RemoteMemory;
class RemoteMemoryCore;
class RemoteStripes;

// A read or write that a coroutine awaits; gives its status. The memory outlives it.
class [[nodiscard]] RemoteAwaiter {
 public:
  RemoteAwaiter(RemoteMemory& memory, bool reads, uint64_t offset, const Slice& local)
      : memory_(memory), reads_(reads), offset_(offset), local_(local) {}

  bool await_ready() const noexcept { return false; }
  template <class Promise>
  bool await_suspend(std::coroutine_handle<Promise> coroutine) {
    resumption_.Set(coroutine);
    return !StartNow() && resumption_.Suspend();
  }
  absl::Status await_resume() { return std::move(status_); }

 private:
  // True: it is done.
  bool StartNow();

  RemoteMemory& memory_;
  const bool reads_;
  const uint64_t offset_;
  const Slice local_;
  internal::Resumption resumption_;
  absl::Status status_;
};

struct RemoteMemoryOptions {
  // Behaviour.
  // What the memory is taken for: kLayoutHash of a fixed-layout message, 0 for plain bytes. An
  // owner who has said something else makes Open() fail.
  uint64_t layout = 0;
  // How long each lease is asked for: 1 s to 60 s; the owner may give less. Longer: fewer renewals,
  // and this process may stand still for longer (half of it) in the midst of operations. Shorter:
  // an owner whose holder has vanished has its memory back sooner.
  uint64_t lease_us = 10'000'000;
  // How long each operation may take, from when the engine has it: at most an hour; 0: as long as
  // it does. It is the peer's provider that is waited for; on tcp, and for atomics everywhere, its
  // engine too. 30 s: longer than it takes to find a peer dead, and to connect again.
  uint64_t timeout_us = 30'000'000;
  // Open() waits for the lease and reports why there is none. False: the first use asks.
  bool resolve_at_once = true;
  // Performance.
  uint32_t max_waiting = 1024;  // 1..65536 operations that cannot be posted yet
};

// One piece of a batch: local.length bytes between local memory and remote [offset...].
struct RemotePiece {
  uint64_t offset = 0;  // bytes
  Slice local;
};

class RemoteMemory {
 public:
  // Takes what a message brought. From inside a callback of the channel's engine only with
  // resolve_at_once = false. INVALID_ARGUMENT: not a handle, or options out of bounds.
  static absl::StatusOr<std::unique_ptr<RemoteMemory>> Open(
      Channel& channel, const RemoteRegion& region, const RemoteMemoryOptions& options = {});
  ~RemoteMemory();
  RemoteMemory(const RemoteMemory&) = delete;
  RemoteMemory& operator=(const RemoteMemory&) = delete;

  // What the handle says.
  uint64_t size() const { return handle_.length(); }  // bytes
  Rights rights() const { return handle_.rights(); }
  Channel& channel() { return channel_; }

  // Memory of the program's, as Buffer::Of(), that is good for all engines of the channel: large
  // transfers of it move in stripes. It is this object's: others refuse it, but for those that were
  // opened on the same thread. It is registered with each engine that moves stripes of it; its
  // destructor waits for those, and is not to be called inside of callbacks.
  std::unique_ptr<Buffer> BufferOf(MutableByteSpan bytes);

  // Asks the owner for a handle to `length` bytes from `offset`, with fewer rights, for a time (0:
  // as long as this one), to pass on to whoever is of the same tenant. Blocks. UNAVAILABLE: no
  // connection now; PERMISSION_DENIED as above.
  absl::StatusOr<RemoteRegion> Derive(uint64_t offset, uint64_t length, Rights rights,
                                      uint64_t lifetime_us = 0);

  // --- blocking: return when it has ended -------------------------------------------------------

  absl::Status Read(uint64_t offset, const Slice& into);
  absl::Status Write(uint64_t offset, const Slice& from);
  // 1..kMaxBatchTransfers pieces, posted together, in any order among themselves. After an error,
  // others may have been carried out.
  absl::Status ReadBatch(absl::Span<const RemotePiece> pieces);
  absl::Status WriteBatch(absl::Span<const RemotePiece> pieces);
  // As WriteBatch(), and over when the bytes are in the owner's memory: its engine has answered
  // behind them, or its card alone (verbs, if the handle grants reads). One round trip more, but
  // for memory that this process has mapped. Errors, besides: UNIMPLEMENTED: the owner's release
  // answers no probes; the bytes were sent.
  absl::Status WriteAcknowledged(absl::Span<const RemotePiece> pieces);
  // What was there before.
  absl::StatusOr<uint64_t> FetchAdd(uint64_t offset, uint64_t operand);
  absl::StatusOr<uint64_t> CompareSwap(uint64_t offset, uint64_t expected, uint64_t desired);

  // --- with a callback: return when it is accepted ----------------------------------------------

  // `done` runs once, on the engine's thread and not inside this function; only when the engine's
  // inbox is full, or max_waiting operations that failed at once wait for theirs, does it run here.
  // The pieces' array may go when this returns.
  void Read(uint64_t offset, const Slice& into, Function<void(absl::Status)> done);
  void Write(uint64_t offset, const Slice& from, Function<void(absl::Status)> done);
  void ReadBatch(absl::Span<const RemotePiece> pieces, Function<void(absl::Status)> done);
  void WriteBatch(absl::Span<const RemotePiece> pieces, Function<void(absl::Status)> done);
  void WriteAcknowledged(absl::Span<const RemotePiece> pieces, Function<void(absl::Status)> done);
  // As WriteBatch(), but for its order: a message that is sent before its end may arrive before the
  // bytes, so calls need not wait for them (over tcp, 64 MiB are 10 ms and more). One that is sent
  // behind its end finds them.
  void WriteUnordered(absl::Span<const RemotePiece> pieces, Function<void(absl::Status)> done);
  void FetchAdd(uint64_t offset, uint64_t operand, Function<void(absl::StatusOr<uint64_t>)> done);
  void CompareSwap(uint64_t offset, uint64_t expected, uint64_t desired,
                   Function<void(absl::StatusOr<uint64_t>)> done);

  // --- at once where it can be, else with a callback --------------------------------------------

  // True: it was carried out before this returned, without an error, and `done` will not be called:
  // so it is over shared memory, where this process has mapped what the owner exports, and nothing
  // waits before it. False: as with a callback. For programs that have many operations to make: the
  // next one follows in a loop, and no callback starts it from inside. Who makes nothing but these
  // drives the engine now and then (Engine::Poll()), for the lease's renewal and all else on it.
  [[nodiscard]] bool ReadNow(uint64_t offset, const Slice& into, Function<void(absl::Status)> done);
  [[nodiscard]] bool WriteNow(uint64_t offset, const Slice& from,
                              Function<void(absl::Status)> done);

  // --- after a deadline -------------------------------------------------------------------------

  // Blocks until nothing touches the local memory of operations that have ended by their deadlines,
  // or for `timeout_us`. Returns whether it is so. Inside a callback of the engine it does not
  // wait.
  bool WaitReclaimed(uint64_t timeout_us);
  // `then` runs once that is so, on the engine's thread; if it is already, before this returns, on
  // this one.
  void WhenReclaimed(Function<void()> then);

  // --- for coroutines (weft/coroutine.h) --------------------------------------------------------

  // Inside the await where ReadNow() and WriteNow() are done at once; the other forms by Await().
  RemoteAwaiter CoRead(uint64_t offset, const Slice& into) { return {*this, true, offset, into}; }
  RemoteAwaiter CoWrite(uint64_t offset, const Slice& from) { return {*this, false, offset, from}; }

 private:
  // As RemoteMemoryCore's.
  bool HoldWhileLate(Function<void()>& then);

  RemoteMemory(Channel& channel, const RegionHandle& handle, const RemoteMemoryOptions& options);

  // Constant after construction.
  Channel& channel_;
  const RegionHandle handle_;
  RemoteMemoryCore* const core_;            // the engine's side; goes with this
  std::unique_ptr<RemoteStripes> stripes_;  // null: the channel has one engine
};

}  // namespace weft
