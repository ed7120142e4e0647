// How a payload of each size goes, by path: one table for everybody who has to choose.
//
//   a message    up to batch_bytes   shares a batch with others of its turn
//                up to widest_bytes  opens a wide batch: eager as well, in the order of commits. So
//                                    does what a turn sends beyond its first batch
//                above               is offered, and fetched by the peer (large_sender.h)
//   a payload    moved one-sided and whole (weft.Bulk); how many at a time:
//   rpc/bulk/in_flight_limit.h
//
// Batches of both sizes hold their headers too, so that a payload fits that is a few dozen bytes
// shorter. Both ends agree on the smaller of their widest_bytes in the handshake.
//
// To measure: ./dev perf --only unary:16384:1,unary:65536:8 and the like
// (docs/performance_log.md has what came out).
//
// Threads: plain values.
#pragma once

#include <cstdint>

#include "transport/path.h"

namespace weft {

struct TransferTable {
  // What messages of one turn are gathered into. Larger: fewer messages of the provider's, and more
  // memory in each send slot. NetworkOptions::slot_bytes overrides it.
  uint32_t batch_bytes;
  // At least batch_bytes; equal: there are no wider ones. Larger: memory of receives. A multiple of
  // 64.
  uint32_t widest_bytes;
  // Of large messages, fetched at one time on one connection; a message of any size, if no other
  // is. Each has a buffer from when its fetch is posted until it is delivered: with eight of 1 MiB
  // all at once none of them is in a cache when its turn comes. Less than the wire holds costs
  // time.
  uint64_t fetched_bytes;
  // Whether a fetch that has succeeded has brought every byte that was asked for, whatever the peer
  // does. Else large messages are sealed without security too (framed_connection.h), and with a
  // peer of an older release, which does not seal them, the buffer is wiped before.
  bool fetches_whole = true;
};

constexpr TransferTable TransfersOf(PathKind kind) {
  constexpr uint32_t kKiB = 1 << 10;
  constexpr uint64_t kMiB = uint64_t{1} << 20;
  // 100 calls of 64 B; and a page of 8,000 B.
  constexpr uint32_t kBatch = 8 * kKiB;
  switch (kind) {
    case PathKind::kShm:
      // A ring has 24 KiB, made for records of this size. What is larger lies in memory that the
      // peer has mapped: fetching it is one copy, of which a record would be two.
      // The engine copies, and has done one before it begins the next.
      return {.batch_bytes = kBatch, .widest_bytes = kBatch, .fetched_bytes = kMiB};
    case PathKind::kTcp:
      // A fetch is a message there and one back, whatever its size, and the kernel copies a message
      // just as well: 16 KiB take 25 us eagerly and 64 us fetched, 64 KiB 62 and 80. 64 KiB with
      // room for headers and windows; an odd number of cache lines, so that neighbouring slots do
      // not meet in the same sets of the cache.
      return {.batch_bytes = kBatch,
              .widest_bytes = 64 * kKiB + 9 * 64,
              .fetched_bytes = 2 * kMiB};  // 6 bytes/ns for 350 us
    case PathKind::kOfiTcp:
      // As verbs, at the speed of tcp.
      return {.batch_bytes = kBatch,
              .widest_bytes = kBatch,
              .fetched_bytes = 2 * kMiB,
              .fetches_whole = false};
    case PathKind::kVerbs:
      // A card reads by itself, and counts the bytes; nobody has measured wider batches.
      return {.batch_bytes = kBatch,
              .widest_bytes = kBatch,
              .fetched_bytes = 16 * kMiB};  // 50 bytes/ns for 300 us
    case PathKind::kSim:
      break;
  }
  // So little that tests meet the bound.
  return {.batch_bytes = kBatch, .widest_bytes = kBatch, .fetched_bytes = uint64_t{16} * kKiB};
}

}  // namespace weft
