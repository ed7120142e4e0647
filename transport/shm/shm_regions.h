// One-sided access between processes of one host, without the target's processor.
//
// process_vm_readv(2) and process_vm_writev(2) copy between two processes of one user in one system
// call, at once, whether the other sleeps or not. All that is needed is to know where a key's
// memory lies.
//
// So each shm domain publishes the regions that it registered for remote access in a table that its
// peers map for reading only, and peers look keys up there. They say that they are copying by
// counting in a pin, one for each place of the table, in memory that they may write to
// (domain_memory.h). A key's low bits are its place in the table, the others are random.
//
// A region that lies in a file in memory (transport/memory_file.h), as those of pools do, is
// published with the file and its place there. The initiator maps the file, once, and copies by
// memcpy: no system call at all (transport/shm/peer_files.h). All else is the same: pin, look,
// copy, unpin (Move()).
//
// Where neither works (the kernel does not permit it: Yama's ptrace_scope, containers), Transfer()
// says UNIMPLEMENTED, and the target is asked (asked_copies.h); it looks into its own notes
// (Find()). So it is where the table itself cannot be opened.
//
//   target     Publish()  key visible      Withdraw()  key := 0, then waits until pins are 0, if
//                                                      peers may write
//   initiator  Transfer() pins + 1, key still there?, copy, pins - 1, key still there?
//
// With sequentially consistent operations either the initiator sees the key gone, or the target
// sees the pin and waits: memory is not written after Withdraw() has returned true. Pins of a
// process that died or was stopped in the middle, or of a peer that lies, stay. They are waited for
// 100 ms in all, and a tenth of the time that goes by: then Withdraw() says false at once, which
// costs the link two round trips (Link::Reclaim()). Places with pins are used again when there are
// no others. Who goes on after that finds the key gone behind its copy, which fails: what was
// written may have come too late for the target, and what was read may be what it has put there
// since. So where peers may only read, Withdraw() waits for nobody: a reader that goes on fails,
// and harms nothing. That matters for clients that are killed in the middle of a large reply, which
// is lent for reading.
//
// Threads: each object one engine's; the shared memory any.
// Trust: processes of one user may read and write each other's memory anyway. Bounds and rights
//   are checked by the initiator; that protects against mistakes, not against enemies with the
//   same user id. Where a peer that makes mistakes writes, it harms no other: the table is its
//   owner's alone to write. False pins delay the end of a region, as above; and one that is taken
//   away while another peer copies lets the owner go on before that copy is over, which then fails.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "core/cache_line.h"
#include "core/clock.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/shm/copy_ways.h"
#include "transport/shm/old_mappings.h"
#include "transport/shm/peer_files.h"

namespace weft {

// Regions open for remote access at once, in one domain: 256 KiB of table, and as much of pins.
inline constexpr uint32_t kMaxShmRegions = 4096;

struct SharedRegionTable;  // layout: shm_regions.cc

// By place in the table. Peers count in them; anything else may be written there, too.
struct SharedRegionPins {
  struct alignas(kCacheLineBytes) Line {
    std::atomic<uint32_t> pins;  // initiators that are copying
  };
  Line of[kMaxShmRegions];
};

class RegionTable final {
 public:
  // Of the table, at a multiple of 64.
  static constexpr size_t kBytes = 64 + size_t{kMaxShmRegions} * 64;

  // Publishes in `table`, which is kBytes of zeros. It outlives this, and so do `pins`, zeros too.
  RegionTable(std::byte* table, SharedRegionPins* pins, const Clock* clock = &Clock::Real());
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // A fresh random key with a place of its own. RESOURCE_EXHAUSTED when the table is full.
  absl::StatusOr<uint64_t> NewKey();
  // REQUIRES: `key` is from NewKey(). Publish() and later Withdraw().
  void Publish(uint64_t key, MutableByteSpan memory, Access access);
  // Nobody writes there any more, and nothing counts that is read. False: a peer may be in the
  // middle of writing, and does not come to an end.
  bool Withdraw(uint64_t key);

  // Where a range of a region lies, for a peer that asks; null: no such region, range or right.
  std::byte* Find(bool is_read, uint64_t key, uint64_t offset, uint64_t bytes) const;

 private:
  // What was published, where no peer can write.
  struct Own {
    uint64_t key = 0;
    MutableByteSpan memory;
    uint32_t rights = 0;
  };

  // Waits for pins as long as there is patience. False: they stay.
  bool AwaitUnpinned(uint32_t place);

  SharedRegionTable* const table_;
  SharedRegionPins* const pins_;
  std::unique_ptr<uint64_t> identity_;  // a number at an address of ours: who can read it there
                                        // has the right process and the right to read
  std::vector<Own> own_;                // by place
  std::vector<uint32_t> free_;
  std::deque<uint32_t> pinned_;  // free but for pins, those since longest first

  const Clock* const clock_;
  uint64_t patience_ns_;  // left for pins
  uint64_t refilled_ns_;  // when it was last made more
};

class PeerRegions {
 public:
  // Tries to read from the process whose table and pins these are; they outlive this, and so does
  // `old`. `process_id`: as the kernel vouched for it. UNIMPLEMENTED: another layout.
  static absl::StatusOr<std::unique_ptr<PeerRegions>> Open(const std::byte* table,
                                                           SharedRegionPins* pins,
                                                           int32_t process_id, const CopyWays& ways,
                                                           OldMappings* old);
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  // Copies now. PERMISSION_DENIED for a bad key, range or right, without saying which;
  // UNAVAILABLE when the process is gone; UNIMPLEMENTED when nothing was copied because this memory
  // cannot be reached from here.
  absl::Status Transfer(bool is_read, std::byte* local, uint64_t bytes, uint64_t key,
                        uint64_t offset);

  // Copies by memcpy, if the range lies in memory that is mapped here: true. False: it does not, or
  // is refused. REQUIRES: local.size() == remote.length.
  bool Move(bool is_read, MutableByteSpan local, const RemoteSpan& remote);

  // As many pieces as a batch has, with one system call for all that are not mapped: true when all
  // were copied. False: ask for one after the other; some may have been copied already.
  // REQUIRES: <= kMaxBatchTransfers.
  bool TransferAtOnce(bool is_read, absl::Span<const weft::Transfer> pieces);

  // The peer's, proven by what was read from it.
  int32_t process_id() const { return process_id_; }

 private:
  // Where a range of a region lies.
  struct Range {
    bool granted = false;         // false: no such region, range or right
    std::byte* mapped = nullptr;  // here; null: it cannot be mapped
    uint64_t address = 0;         // in the peer
  };

  PeerRegions(const SharedRegionTable* table, SharedRegionPins* pins, int32_t process_id,
              bool may_map, OldMappings* old)
      : table_(table),
        pins_(pins),
        process_id_(process_id),
        may_map_(may_map),
        files_(process_id, old) {}
  // Pinned, granted or not, until Unpin().
  Range PinRange(bool is_read, uint64_t key, uint64_t offset, uint64_t bytes);
  bool Unpin(uint64_t key);
  bool ProcessIsGone();
  absl::Status CheckIdentity() const;
  absl::Status Copy(bool is_read, std::byte* local, uint64_t bytes, uint64_t remote) const;

  const SharedRegionTable* const table_;
  SharedRegionPins* const pins_;
  const int32_t process_id_;
  const bool may_map_;
  absl::Status system_calls_;  // OK: they work
  PeerFiles files_;
  int process_fd_ = -1;        // a pidfd: the number may be used again, this is not. -1: old kernel
  uint64_t gone_look_ns_ = 0;  // when to look at process_fd_ again
  uint32_t moves_to_look_ = 0;  // the same for Move()
};

}  // namespace weft
