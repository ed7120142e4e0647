// Asynchronous operations on a peer's memory, and what their callers are told.
//
// Atomics are *mediated*: the peer's engine executes them, by its processor
// (std::atomic_ref<uint64_t>), and answers with what was there before. So on every path, and never
// by the network card, although some cards could: an InfiniBand card's atomics are atomic among
// themselves only (IBV_ATOMIC_HCA), and one that mixes them with those of other paths, or of the
// owner's own threads, loses updates; iWARP, tcp and shared memory have none; and libfabric 1.17
// takes the operand's address for its value over verbs' connected endpoints. What holds on all
// paths is worth more than the fastest on one. It follows that atomics need a peer whose engine is
// driven, and cost a round trip of a small message, not that of a one-sided transfer.
//
// Threads, Lifetime: as RemoteAccess, in remote_access.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/region.h"

namespace weft {

// One piece of a batch: remote.length bytes between local->memory()[local_offset...] and the peer.
// Several with neighbouring remote ranges gather from, or scatter into, local pieces; several with
// distant ones fetch or change many records in one go.
struct Transfer {
  const Region* local = nullptr;
  size_t local_offset = 0;
  RemoteSpan remote;
};

// Pieces of one batch. What a look-up of many records needs; bounds a post's time.
inline constexpr size_t kMaxBatchTransfers = 64;

// What a post does with each of its transfers.
enum class TransferKind : uint8_t {
  kRead = 1,
  // Over when the local memory may be reused: on some paths (ofi_tcp) when the bytes have been
  // copied to be sent.
  kWrite = 2,
  // Over when the peer's provider says that the bytes are in its memory, where the provider can say
  // it; elsewhere as kWrite. So what is outstanding is what is on its way. The order is the same: a
  // message that is sent behind the post finds the bytes there.
  kWriteAcknowledged = 3,
  // A write that holds up no message: one that is sent behind the post may arrive before the bytes,
  // one that is sent behind the end finds them. For large writes whose peer hears of them behind
  // their end. Over as kWrite. Where paths keep the order without cost it is kept: all but tcp.
  kWriteUnordered = 4,
};

// What has become of an accepted post.
enum class Posted : uint8_t {
  kPending = 1,  // Operation::OnComplete() comes, later
  kDone = 2,     // it was carried out inside the call, without an error: OnComplete() does not come
};

// One asynchronous operation. The caller owns it and keeps it, and the local memory, untouched from
// the post until OnComplete(). After Posted::kDone it is the caller's at once.
class Operation {
 public:
  // Exactly once for each post that is pending, never from inside the post. OK after a read: the
  // bytes are here. OK after a write: the local memory may be reused; only a reply from the peer
  // proves delivery. OK after a probe: the peer's transport has answered.
  virtual void OnComplete(const absl::Status& status) = 0;

 protected:
  ~Operation() = default;
};

// One atomic operation on 64 bits of a peer's memory. The caller keeps it until OnComplete().
class AtomicOperation {
 public:
  // Exactly once for each accepted post. OK: it was executed, once, and `before` was there.
  // PERMISSION_DENIED: it was not, and the connection goes on. Any other error is the end of the
  // connection: it may have been executed.
  virtual void OnComplete(const absl::Status& status, uint64_t before) = 0;

 protected:
  ~AtomicOperation() = default;
};

}  // namespace weft
