// TCP as a network of links: plain non-blocking sockets, no library, no thread.
//
//   tcp_frame.h    the bytes on the socket
//   tcp_regions.h  the memory that peers may read and write, found by key
//   tcp_slots.h    send slots
//   tcp_output.h   what leaves by a socket, and in which order
//   tcp_input.h    what arrives by it: checked, and put in its place
//   tcp_link.h, tcp_domain.h   Link and LinkDomain made of these
//
// A link has a socket of its own for its data, beside the control connection, whose heartbeats
// therefore never wait behind 64 MiB. The active side connects it to the address at which it
// reached its peer (LinkPeer::address: "10.0.0.7:4711", "[::1]:4711" or "unix:/path"; numeric) and
// sends a join, which names the link by a token. The passive side does not listen: whoever does
// (the control connection's listener) hands the socket and its token to LinkDomain::TakeSocket().
//
// One-sided operations are carried out by the target's engine, in Poll(), against its own table of
// regions: a key and bounds are looked up again for each piece of a transfer. So Reclaim() is
// always true: when a region is gone, nothing touches its memory any more, also in the middle of a
// transfer. All writes are acknowledged by the target, kWrite as kWriteAcknowledged: complete means
// in memory there. A range that the target does not grant ends its operation with
// PERMISSION_DENIED, and the link goes on.
//
// Threads: opening from any thread; a domain is used on its engine's thread.
// Lifetime: what `options` points to outlives the domain.
// Errors: INVALID_ARGUMENT names the option. A peer that breaks the rules of tcp_frame.h ends its
//   own link, with DATA_LOSS; a socket that ends is UNAVAILABLE.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "transport/link.h"

namespace weft {

struct TcpOptions {
  // Behaviour.
  BatchSink* sink = nullptr;  // receives every batch; required

  // Performance.
  uint32_t slot_bytes = 8 << 10;  // multiple of 64, 256..131072
  uint32_t wide_slot_bytes = 0;   // multiple of 64; no more than slot_bytes: none
  // One-sided transfers, in the whole domain; 1..65536. Taken as needed. Many more than a link may
  // have (1,024): peers that answer nothing keep theirs for as long as they like.
  uint32_t max_outstanding_operations = 65536;
  uint64_t max_pool_bytes = uint64_t{256} << 20;  // slots at most; taken as needed
};

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenTcpDomain(const TcpOptions& options);

}  // namespace weft
