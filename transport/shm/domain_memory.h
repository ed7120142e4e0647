// The memory that a domain shows to all its peers: whom to look after, and its regions.
//
//   0        magic
//   64       ready flags (ready_flags.h)     written by peers and the domain
//   8256     table of regions (shm_regions.h)  written by the domain; peers count pins there
//
// Each peer gets its descriptor in the handshake and maps it, once for all its links with this
// domain (PeerDomains).
//
// Threads: the layout, any; each object one engine's.
// Trust: a peer may write anything here. It can delay others (ready_flags.h), and it reaches what
//   processes of one user reach anyway (shm_regions.h). It cannot crash or stop the domain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/shm/ready_flags.h"
#include "transport/shm/sealed_memory.h"
#include "transport/shm/shm_regions.h"

namespace weft {

struct SharedDomainMemory {
  uint64_t magic;
  alignas(64) SharedReadyFlags ready_flags;
  alignas(64) std::byte regions[RegionTable::kBytes];
};

// This side's own.
class DomainMemory {
 public:
  static absl::StatusOr<std::unique_ptr<DomainMemory>> Create();

  // For peers.
  int descriptor() const { return memory_.descriptor(); }
  ReadyFlags& ready_flags() { return ready_flags_; }
  RegionTable& regions() { return regions_; }

 private:
  explicit DomainMemory(SealedMemory memory);
  SharedDomainMemory* shared() const {
    return reinterpret_cast<SharedDomainMemory*>(memory_.data());
  }

  const SealedMemory memory_;
  ReadyFlags ready_flags_;
  RegionTable regions_;
};

// A peer's, shared by all links that lead there.
class PeerDomain {
 public:
  PeerDomain(FileIdentity identity, SealedMemory memory, int32_t process_id, const CopyWays& ways);

  const FileIdentity& identity() const { return identity_; }
  // The byte of the peer's link with that index. REQUIRES: index < kMaxShmLinks.
  ReadyFlag* ready_flag(uint32_t index) { return &shared()->ready_flags.of[index]; }
  // Null: its memory cannot be reached; regions_status() says why.
  PeerRegions* regions() const { return regions_.get(); }
  const absl::Status& regions_status() const { return regions_status_; }

 private:
  SharedDomainMemory* shared() const {
    return reinterpret_cast<SharedDomainMemory*>(memory_.data());
  }

  const FileIdentity identity_;
  const SealedMemory memory_;
  absl::Status regions_status_;
  std::unique_ptr<PeerRegions> regions_;
};

// The peers that links of one domain lead to.
class PeerDomains {
 public:
  explicit PeerDomains(const CopyWays& ways) : ways_(ways) {}

  // Borrows the descriptor. `process_id`: as the kernel vouched for it.
  absl::StatusOr<std::shared_ptr<PeerDomain>> Open(int descriptor, int32_t process_id);

 private:
  const CopyWays ways_;
  std::vector<std::weak_ptr<PeerDomain>> known_;
};

}  // namespace weft
