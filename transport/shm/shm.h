// Shared memory between processes of one host as a network of links: rings that both sides map, and
// copies from process to process for one-sided operations. No library and no file; a thread only
// for as long as files of peers that are gone are to be freed (old_mappings.h).
//
//   ring.h           a one-way queue of records: layout, ordering, hostile peers
//   link_memory.h    the memory of one link: two rings, and who is there
//   ready_flags.h    which of very many links have something to read
//   domain_memory.h  what a domain shows to all its peers
//   shm_regions.h    one-sided access: peer_files.h by mapped memory, asked_copies.h by the peer
//   copy_turn.h, old_mappings.h   what is copied, and unmapped, in one turn of the engine
//   shm_link.h, shm_domain.h   Link and LinkDomain made of these
//
// The caller brings both ends together: it hands LinkDomain::host_descriptor() of each to the
// other, and the memory of the link, which the passive side makes (LinkDomain::NewLinkMemory()), to
// the active one (LinkPeer). Accept() comes before the peer's Connect(). It also watches over
// peers: a process that closes a link says so, one that dies says nothing, and Link::Abandon() is
// the answer.
//
// A link costs 52 KiB of memory, of which idle ones have touched little.
//
// Threads: opening from any thread; a domain is used on its engine's thread.
// Lifetime: what `options` points to outlives the domain.
// Errors: INVALID_ARGUMENT names the option.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "transport/link.h"
#include "transport/shm/copy_ways.h"

namespace weft {

// A batch is one record of a ring.
inline constexpr uint32_t kMaxShmSlotBytes = 8 << 10;

struct ShmOptions {
  // Behaviour.
  BatchSink* sink = nullptr;  // receives every batch; required

  // Performance.
  uint32_t slot_bytes = kMaxShmSlotBytes;         // multiple of 64, 256..kMaxShmSlotBytes
  uint32_t max_outstanding_operations = 1024;     // one-sided, in the whole domain; 1..65536
  uint64_t max_pool_bytes = uint64_t{256} << 20;  // rings at most; taken as needed
  CopyWays copies;

  // False: the host's thread is the only one of the process. What a thread of its own would do, the
  // engine does (old_mappings.h).
  bool may_start_threads = true;
  const Clock* clock = &Clock::Real();  // tells how long copies take (copy_turn.h)
};

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenShmDomain(const ShmOptions& options);

}  // namespace weft
