// How the transfers of calls share a connection with the replies that are due when they end.
//
// A server that is asked for eight payloads at once could post eight transfers, and then send eight
// replies. Where posting is copying (by the kernel on tcp, by this thread on shm), the first reply
// would leave when the last payload has been copied; the client would then ask for the next eight
// at once, and each side would wait for the other in turn. So only so much is posted at a time, and
// replies leave in the middle of a turn. On shm that lets the two ends' checksums overlap.
//
// To measure: ./dev perf --only bulk:65536:64,bulk:1048576:8,bulk_checked:1048576:8 --paths shm,tcp
// (docs/performance_log.md has what came out). Pieces: transport/transfer_table.h.
//
// Threads: plain values.
#pragma once

#include <cstdint>

#include "transport/path.h"

namespace weft {

// In bytes.
struct InFlightLimit {
  // Posted at one time, each way; a transfer of any size, if no other is. More hides a wire's delay
  // where the device copies by itself; where the thread copies it only delays replies.
  uint64_t pushed_bytes;
  uint64_t fetched_bytes;
  // Pushes of at least so many bytes, beside others, are acknowledged writes
  // (TransferKind::kWriteAcknowledged), and count until the peer has them.
  uint64_t acknowledged_bytes;
  // Moved before the replies that this made due leave; what is left does at the turn's end. Less:
  // the client hears sooner; more messages.
  uint64_t replied_bytes;
};

constexpr InFlightLimit InFlightLimitOf(PathKind kind) {
  constexpr uint64_t kKiB = 1 << 10;
  constexpr uint64_t kMiB = kKiB << 10;
  constexpr uint64_t kNoLimit = ~uint64_t{0};
  switch (kind) {
    case PathKind::kShm:
      // This thread copies, 35 bytes/ns, and has done when it has posted. A reply costs 0.1 us, as
      // much as 4 KiB.
      return {.pushed_bytes = 64 * kKiB,
              .fetched_bytes = 64 * kKiB,
              .acknowledged_bytes = kNoLimit,
              .replied_bytes = 64 * kKiB};
    case PathKind::kTcp:
      // 6 bytes/ns. 4 MiB may be on their way, either way: what a socket holds, and in long runs,
      // for which the kernel sets fewer timers of its pacing. A reply is a system call, 4 us, as
      // much as 24 KiB.
      return {.pushed_bytes = 4 * kMiB,
              .fetched_bytes = 4 * kMiB,
              .acknowledged_bytes = kNoLimit,
              .replied_bytes = 512 * kKiB};
    case PathKind::kOfiTcp:
      // As on tcp. A push is in the socket when it has been posted, and its write then over: more
      // and more would be posted to a socket that is full and takes it bit by bit, in no cache any
      // more. So large ones are over when the peer has them; for 256 KiB the acknowledgement, two
      // system calls, costs more than it saves.
      return {.pushed_bytes = 4 * kMiB,
              .fetched_bytes = 4 * kMiB,
              .acknowledged_bytes = 512 * kKiB,
              .replied_bytes = 512 * kKiB};
    case PathKind::kVerbs:
      // A reply is sent behind everything that was posted before it, and a device in software
      // copies as it is posted to. So no more is pushed than keeps a card busy, 50 bytes/ns for 40
      // us: the next is posted while the one before is on its way. Fetches hold up no replies: 50
      // bytes/ns for 300 us, any delay of a network of cards.
      return {.pushed_bytes = 2 * kMiB,
              .fetched_bytes = 16 * kMiB,
              .acknowledged_bytes = kNoLimit,
              .replied_bytes = 64 * kKiB};
    case PathKind::kSim:
      break;
  }
  return {.pushed_bytes = kNoLimit,
          .fetched_bytes = kNoLimit,
          .acknowledged_bytes = kNoLimit,
          .replied_bytes = kNoLimit};
}

}  // namespace weft
