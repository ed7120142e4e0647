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
struct BulkPace {
  // Posted at one time, each way; a transfer of any size, if no other is. More hides a wire's delay
  // where the device copies by itself; where the thread copies it only delays replies.
  uint64_t pushed_bytes;
  uint64_t fetched_bytes;
  // The bound instead of pushed_bytes for pushes no larger than this: many at once would only delay
  // the replies to the first. 0: none is so small.
  uint64_t small_bytes;
  // Moved before the replies that this made due leave; what is left does at the turn's end. Less:
  // the client hears sooner; more messages.
  uint64_t replied_bytes;
};

constexpr BulkPace PaceOf(PathKind kind) {
  constexpr uint64_t kKiB = 1 << 10;
  constexpr uint64_t kMiB = kKiB << 10;
  constexpr uint64_t kNoLimit = ~uint64_t{0};
  switch (kind) {
    case PathKind::kShm:
      // This thread copies, 35 bytes/ns, and has done when it has posted. A reply costs 0.1 us, as
      // much as 4 KiB.
      return {.pushed_bytes = 64 * kKiB,
              .fetched_bytes = 64 * kKiB,
              .small_bytes = 0,
              .replied_bytes = 64 * kKiB};
    case PathKind::kTcp:
      // 6 bytes/ns. What is pushed is in the socket, which holds 4 MiB, when it has been posted; so
      // much at a time, and not one after the other: the kernel has long runs to send, with fewer
      // timers of its pacing. (For payloads of up to 512 KiB nobody has measured more.) What is
      // fetched comes after a round trip: 4 MiB is what may be on its way meanwhile. A reply is a
      // system call of 4 us, as much as 24 KiB.
      return {.pushed_bytes = 4 * kMiB,
              .fetched_bytes = 4 * kMiB,
              .small_bytes = 512 * kKiB,
              .replied_bytes = 512 * kKiB};
    case PathKind::kVerbs:
      // A reply is sent behind everything that was posted before it, and a device in software
      // copies as it is posted to. So no more is pushed than keeps a card busy, 50 bytes/ns for 40
      // us: the next is posted while the one before is on its way. Fetches hold up no replies: 50
      // bytes/ns for 300 us, any delay of a network of cards.
      return {.pushed_bytes = 2 * kMiB,
              .fetched_bytes = 16 * kMiB,
              .small_bytes = 0,
              .replied_bytes = 64 * kKiB};
    case PathKind::kSim:
      break;
  }
  return {.pushed_bytes = kNoLimit,
          .fetched_bytes = kNoLimit,
          .small_bytes = 0,
          .replied_bytes = kNoLimit};
}

}  // namespace weft
