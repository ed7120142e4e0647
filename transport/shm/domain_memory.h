// The memory that a domain shows to all its peers: whom to look after, and its regions.
//
//   0        magic
//   64       ready flags (ready_flags.h)    written by peers and the domain
//   8256     pins of regions (shm_regions.h)  written by peers
//
// Each peer gets its descriptor in the handshake and maps it, once for all its links with this
// domain (PeerDomains).
//
// The table of regions (shm_regions.h), which peers believe, lies in a file of its own that they
// can map for reading only (transport/memory_file.h). Which one is told by the name of the memory's
// own file, which stays as it was made: "weft-domain-", the identity of the table's file, "-", its
// descriptor. Peers open it as they open the files of regions (peer_files.h), whether regions are
// to be mapped or not. Where they cannot, they ask the domain for all copies (asked_copies.h).
//
// Threads: the layout, any; each object one engine's.
// Trust: a peer may write anything into the memory, at any time. It can delay others, by flags and
//   pins, and it reaches what processes of one user reach anyway (shm_regions.h). It cannot crash
//   or stop the domain, nor pass for another, nor spoil another's transfers.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "transport/mapped_memory.h"
#include "transport/memory_file.h"
#include "transport/shm/copy_ways.h"
#include "transport/shm/old_mappings.h"
#include "transport/shm/peer_files.h"
#include "transport/shm/ready_flags.h"
#include "transport/shm/sealed_memory.h"
#include "transport/shm/shm_regions.h"

namespace weft {

struct SharedDomainMemory {
  std::atomic<uint64_t> magic;
  alignas(64) SharedReadyFlags ready_flags;
  alignas(64) SharedRegionPins pins;
};

// In which file the table of a domain lies whose memory this descriptor is: its owner's descriptor.
// identity == 0: the name of the memory does not say it, or cannot be read (/proc is not there).
FilePlace TableOf(int descriptor);

// This side's own.
class DomainMemory {
 public:
  static absl::StatusOr<std::unique_ptr<DomainMemory>> Create();

  // For a peer, which it is to be handed to now: one that was here before may have written over
  // what a new one looks at first, and that is put right.
  int Show();
  ReadyFlags& ready_flags() { return ready_flags_; }
  RegionTable& regions() { return regions_; }
  // Where regions() publishes. For tests.
  MutableByteSpan table() const { return table_.bytes(); }

 private:
  DomainMemory(MappedMemory table, SealedMemory memory);
  SharedDomainMemory* shared() const {
    return reinterpret_cast<SharedDomainMemory*>(memory_.data());
  }

  const MappedMemory table_;
  const SealedMemory memory_;
  ReadyFlags ready_flags_;
  RegionTable regions_;
};

// Tells domains apart: a file, and the process that the kernel vouched for. A process may hand over
// a file that another has handed to it, and say that it is its own: what is known of the other
// domain must not become what is known of that one, nor the other way round.
struct PeerDomainKey {
  FileIdentity file;
  int32_t process_id = 0;
  uint64_t process_start = 0;
  friend bool operator==(const PeerDomainKey&, const PeerDomainKey&) = default;
};

// A peer's, shared by all links that lead there.
class PeerDomain {
 public:
  // `table`: as TableOf() says.
  PeerDomain(const PeerDomainKey& key, const FilePlace& table, SealedMemory memory,
             const CopyWays& ways, OldMappings* old);

  const PeerDomainKey& key() const { return key_; }
  // The byte of the peer's link with that index. REQUIRES: index < kMaxShmLinks.
  ReadyFlag* ready_flag(uint32_t index) { return &shared()->ready_flags.of[index]; }
  // Null: its table cannot be opened; regions_status(), which is UNIMPLEMENTED then, says why.
  PeerRegions* regions() const { return regions_.get(); }
  const absl::Status& regions_status() const { return regions_status_; }

 private:
  SharedDomainMemory* shared() const {
    return reinterpret_cast<SharedDomainMemory*>(memory_.data());
  }

  const PeerDomainKey key_;
  const SealedMemory memory_;
  PeerFiles table_file_;
  absl::Status regions_status_;
  std::unique_ptr<PeerRegions> regions_;
};

// The peers that links of one domain lead to.
class PeerDomains {
 public:
  // `has_old`, `old`: as OldMappings.
  PeerDomains(const CopyWays& ways, bool* has_old, const OldMappings::Options& old = {})
      : ways_(ways), old_mappings_(has_old, old) {}

  // What those had mapped that are gone. The peers go before it.
  OldMappings& old_mappings() { return old_mappings_; }
  const OldMappings& old_mappings() const { return old_mappings_; }

  // Borrows the descriptor. The process is the one that the kernel vouched for.
  absl::StatusOr<std::shared_ptr<PeerDomain>> Open(int descriptor, int32_t process_id,
                                                   uint64_t process_start);

 private:
  const CopyWays ways_;
  OldMappings old_mappings_;
  std::vector<std::weak_ptr<PeerDomain>> known_;
};

}  // namespace weft
