// One-sided access between processes of one host, without the target's processor.
//
// libfabric's shm provider carries out a read or write on the target's side, when the target next
// progresses; it answers nothing at all for an unknown key, and in 1.17 one operation that is never
// answered (bad key, dead peer) holds up all later ones of the same endpoint for ever. The kernel
// can do better: process_vm_readv(2) and process_vm_writev(2) copy between two processes of one
// user in one system call, at once, whether the other sleeps or not. All that is needed is to know
// where a key's memory lies.
//
// So each shm domain publishes the regions that it registered for remote access in a table in
// shared memory (the domain's own file, for the same user only), and peers look keys up there. A
// key's low bits are its place in the table, the others are random.
//
// Where the kernel does not permit it (Yama's ptrace_scope, containers), PeerRegions::Open() says
// so, and the provider's own way is taken.
//
// A region that lies in a file in memory (transport/memory_file.h), as those of pools do, is
// published with the file and its place there. The initiator maps the file, once, and copies by
// memcpy: no system call at all (transport/shm/peer_files.h). All else is the same.
//
//   target     Publish()  key visible      Withdraw()  key := 0, then waits until pins are 0
//   initiator  Transfer() pins + 1, key still there?, copy, pins - 1
//
// With sequentially consistent operations either the initiator sees the key gone, or the target
// sees the pin and waits: memory is not touched after Withdraw() has returned. A pin held by a
// process that died or was stopped in the middle is waited for 100 ms; the place in the table is
// then never used again.
//
// Threads: each object one engine's; the shared memory any.
// Trust: processes of one user may read and write each other's memory anyway. Bounds and rights
//   are checked by the initiator; that protects against mistakes, not against enemies with the
//   same user id.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/bytes.h"
#include "transport/ofi/registration.h"
#include "transport/ofi/shm_name.h"
#include "transport/operation.h"
#include "transport/region.h"
#include "transport/shm/peer_files.h"

namespace weft {

struct SharedRegionTable;  // layout: shm_regions.cc

class RegionTable final : public KeySource {
 public:
  // Regions open for remote access at once, in one domain. A table of 256 KiB.
  static constexpr uint32_t kCapacity = 4096;

  // Publishes as the file of the domain `name`.
  static absl::StatusOr<std::unique_ptr<RegionTable>> Create(const std::string& name);
  virtual ~RegionTable();
  RegionTable(const RegionTable&) = delete;
  RegionTable& operator=(const RegionTable&) = delete;

  // A fresh random key with a place of its own. RESOURCE_EXHAUSTED when the table is full.
  absl::StatusOr<uint64_t> NewKey() final;
  // REQUIRES: `key` is from NewKey(). Either Publish() and later Withdraw(), or Discard().
  void Publish(uint64_t key, MutableByteSpan memory, Access access) final;
  void Discard(uint64_t key) final;
  bool Withdraw(uint64_t key) final;

  // Whether the peer of this link (LinkPeer::nonce) has said that it copies by itself
  // (PeerRegions::Announce()): then nothing of it goes on after Withdraw() is true. Else it may
  // come through the provider.
  bool IsReachedDirectly(uint64_t nonce) const;
  void ForgetLink(uint64_t nonce);

 private:
  RegionTable() = default;

  std::unique_ptr<ShmOwnership> ownership_;
  SharedRegionTable* table_ = nullptr;
  std::unique_ptr<uint64_t> identity_;  // a number at an address of ours: who can read it there
                                        // has the right process and the right to read
  std::vector<uint32_t> free_;
};

class PeerRegions {
 public:
  // Finds the table of the domain `name` and tries to read from its process. `process_id`: as
  // the kernel vouched for it; 0: as the peer says. UNIMPLEMENTED with the reason when memory
  // cannot be reached this way.
  static absl::StatusOr<std::unique_ptr<PeerRegions>> Open(const std::string& name,
                                                           int32_t process_id);
  ~PeerRegions();
  PeerRegions(const PeerRegions&) = delete;
  PeerRegions& operator=(const PeerRegions&) = delete;

  // Copies now. PERMISSION_DENIED for a bad key, range or right, without saying which;
  // UNAVAILABLE when the process is gone.
  absl::Status Transfer(bool is_read, std::byte* local, uint64_t bytes, uint64_t key,
                        uint64_t offset);

  // Lets the peer know that this end of the link `nonce` copies by itself, always.
  void Announce(uint64_t nonce);

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

  explicit PeerRegions(int32_t process_id) : process_id_(process_id), files_(process_id) {}
  // Pinned, granted or not, until Unpin().
  Range PinRange(bool is_read, uint64_t key, uint64_t offset, uint64_t bytes);
  void Unpin(uint64_t key);
  bool ProcessIsGone();
  absl::Status CheckIdentity() const;
  absl::Status Copy(bool is_read, std::byte* local, uint64_t bytes, uint64_t remote) const;

  SharedRegionTable* table_ = nullptr;
  const int32_t process_id_;
  PeerFiles files_;
  int process_fd_ = -1;        // a pidfd: the number may be used again, this is not. -1: old kernel
  uint64_t gone_look_ns_ = 0;  // when to look at process_fd_ again
};

}  // namespace weft
