#include "transport/shm/shm_regions.h"

#include <poll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/inline.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/memory_file.h"
#include "transport/region_handle.h"

namespace weft {

namespace {

constexpr uint64_t kMagic = 0x3447525446455721;  // "!WEFTRG4"
// How long an engine stands still for pins on memory that peers may write, which any of them can
// set: 100 ms at first, which is more than a copy takes whose process has to wait for a processor,
// or for its quota of one (cgroups); and a tenth of its time for ever.
constexpr uint64_t kPinPatienceNs = 100 * kNsPerMs;
constexpr uint64_t kPatienceShare = 10;
// How long a process's number is its own after a look at its pidfd: numbers are given out in turn,
// so one comes again only after all others, some 32,000 forks. (A look costs a system call, a
// seventh of a small copy.)
constexpr uint64_t kTrustNumberNs = 100'000;
// Copies of mapped memory between two looks whether its owner lives: to ask the clock takes as long
// as all else of a small one. The link's end comes by the lifeline anyway.
constexpr uint32_t kMovesPerLook = 16;

// An address of the peer's, for the kernel; here nothing lies there.
void* InPeer(uint64_t address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is never followed
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

struct RegionEntry {
  std::atomic<uint64_t> key;  // 0: nothing here
  std::atomic<uint64_t> base;
  std::atomic<uint64_t> length;
  std::atomic<uint32_t> rights;
  uint32_t unused;
  // The same memory in a file that peers may map (FilePlace); file_identity 0: in none.
  std::atomic<uint64_t> file_identity;
  std::atomic<uint64_t> file_offset;
  std::atomic<int32_t> file_descriptor;
  uint32_t padding[3];
};
static_assert(sizeof(RegionEntry) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(sizeof(SharedRegionPins) == size_t{kMaxShmRegions} * 64);

uint32_t RightsOf(Access access) {
  switch (access) {
    case Access::kLocalOnly:
      return 0;
    case Access::kRemoteRead:
      return kMayRead;
    case Access::kRemoteWrite:
      return kMayWrite;
    case Access::kRemoteReadWrite:
      return kMayRead | kMayWrite;
  }
  return 0;
}

}  // namespace

struct SharedRegionTable {
  uint64_t magic;
  uint64_t identity;          // a random number...
  uint64_t identity_address;  // ...that stands at this address of the process
  uint64_t padding[5];
  RegionEntry entries[kMaxShmRegions];
};
static_assert(sizeof(SharedRegionTable) == RegionTable::kBytes);

namespace {

// Linux maps up to so many bytes around a page that is read first (fault_around_bytes), if they
// exist, and only one page where it is written first.
constexpr uint64_t kMappedAroundBytes = 64 << 10;

// So peers' memory is read before it is written: the first write of 1 MiB then takes 0.07 ms longer
// than later ones, not 0.4. Once it is mapped that costs a load for each 64 KiB.
void MapByReading(const std::byte* begin, uint64_t bytes) {
  const volatile std::byte* const place = begin;
  for (uint64_t at = 0; at < bytes; at += kMappedAroundBytes) static_cast<void>(place[at]);
  static_cast<void>(place[bytes - 1]);
}

void CopyMapped(bool is_read, std::byte* local, std::byte* mapped, uint64_t bytes) {
  if (is_read) {
    std::memcpy(local, mapped, bytes);
  } else {
    if (bytes >= kMappedAroundBytes) MapByReading(mapped, bytes);
    std::memcpy(mapped, local, bytes);
  }
}

uint32_t PlaceOf(uint64_t key) { return static_cast<uint32_t>(key % kMaxShmRegions); }

}  // namespace

// --- the target --------------------------------------------------------------------------------

RegionTable::RegionTable(std::byte* table, SharedRegionPins* pins, const Clock* clock)
    : table_(reinterpret_cast<SharedRegionTable*>(table)),
      pins_(pins),
      identity_(std::make_unique<uint64_t>(SecureRandom64())),
      own_(kMaxShmRegions),
      clock_(clock),
      patience_ns_(kPinPatienceNs),
      refilled_ns_(clock->NowNs()) {
  table_->identity = *identity_;
  table_->identity_address = reinterpret_cast<uintptr_t>(identity_.get());
  table_->magic = kMagic;
  free_.reserve(kMaxShmRegions);
  for (uint32_t place = kMaxShmRegions; place-- > 0;) free_.push_back(place);
}

absl::StatusOr<uint64_t> RegionTable::NewKey() {
  if (free_.empty() && !pinned_.empty()) {
    free_.push_back(pinned_.front());
    pinned_.pop_front();
  }
  if (free_.empty()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(kMaxShmRegions, " regions are open for remote access in this domain"));
  }
  const uint32_t place = free_.back();
  free_.pop_back();
  uint64_t key = SecureRandom64() / kMaxShmRegions * kMaxShmRegions + place;
  if (key == 0) key += kMaxShmRegions;  // 0 means: nothing here
  return key;
}

void RegionTable::Publish(uint64_t key, MutableByteSpan memory, Access access) {
  RegionEntry& entry = table_->entries[PlaceOf(key)];
  entry.base.store(reinterpret_cast<uintptr_t>(memory.data()));
  entry.length.store(memory.size());
  entry.rights.store(RightsOf(access));
  const FilePlace place = FindFile(memory);
  entry.file_identity.store(place.identity);
  entry.file_offset.store(place.offset);
  entry.file_descriptor.store(place.descriptor);
  own_[PlaceOf(key)] = {key, memory, RightsOf(access)};
  entry.key.store(key);
}

std::byte* RegionTable::Find(bool is_read, uint64_t key, uint64_t offset, uint64_t bytes) const {
  const Own& own = own_[PlaceOf(key)];
  const bool allowed = (own.rights & (is_read ? kMayRead : kMayWrite)) != 0;
  const bool inside = offset <= own.memory.size() && bytes <= own.memory.size() - offset;
  return key != 0 && own.key == key && allowed && inside ? own.memory.data() + offset : nullptr;
}

bool RegionTable::AwaitUnpinned(uint32_t place) {
  const std::atomic<uint32_t>& pins = pins_->of[place].pins;
  if (pins.load() == 0) return true;
  const uint64_t begin_ns = clock_->NowNs();
  patience_ns_ =
      std::min(kPinPatienceNs, patience_ns_ + (begin_ns - refilled_ns_) / kPatienceShare);
  uint64_t waited_ns = 0;
  bool unpinned = false;
  while (!unpinned && waited_ns < patience_ns_) {
    std::this_thread::yield();
    unpinned = pins.load() == 0;
    waited_ns = clock_->NowNs() - begin_ns;
  }
  patience_ns_ -= std::min(patience_ns_, waited_ns);
  refilled_ns_ = begin_ns + waited_ns;
  return unpinned;
}

bool RegionTable::Withdraw(uint64_t key) {
  const uint32_t place = PlaceOf(key);
  WEFT_CHECK(own_[place].key == key);  // Ours: a region withdraws its own key, once
  const bool may_write = (own_[place].rights & kMayWrite) != 0;
  own_[place] = {};
  table_->entries[place].key.store(0);
  // A reader's pin only keeps its place out of use.
  const bool unpinned = may_write ? AwaitUnpinned(place) : pins_->of[place].pins.load() == 0;
  if (unpinned) {
    free_.push_back(place);
  } else {
    pinned_.push_back(place);
  }
  if (unpinned || !may_write) return true;
  WEFT_LOG_EVERY_N_SEC(kWarning, 10, "a peer that died, stands still or lies holds a region");
  return false;
}

// --- the initiator -----------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<PeerRegions>> PeerRegions::Open(const std::byte* table,
                                                               SharedRegionPins* pins,
                                                               int32_t process_id,
                                                               const CopyWays& ways,
                                                               OldMappings* old) {
  const auto* const shared = reinterpret_cast<const SharedRegionTable*>(table);
  if (shared->magic != kMagic) {
    return absl::UnimplementedError("the peer's table of regions has another layout");
  }
  std::unique_ptr<PeerRegions> regions(
      new PeerRegions(shared, pins, process_id, ways.mappings, old));
#ifdef SYS_pidfd_open
  regions->process_fd_ = static_cast<int>(syscall(SYS_pidfd_open, regions->process_id_, 0));
#endif
  regions->system_calls_ = ways.system_calls
                               ? regions->CheckIdentity()
                               : absl::UnimplementedError("system calls are not to be used");
  if (!regions->system_calls_.ok()) {
    WEFT_LOG(kInfo, "shm: memory that is not mapped is copied by the peer: ",
             ToStd(regions->system_calls_.message()));
  }
  return regions;
}

PeerRegions::~PeerRegions() {
  if (process_fd_ >= 0) close(process_fd_);
}

bool PeerRegions::ProcessIsGone() {
  const uint64_t now_ns = Clock::Real().NowNs();
  if (now_ns < gone_look_ns_) return false;
  pollfd process = {process_fd_, POLLIN, 0};
  if (process_fd_ >= 0 && poll(&process, 1, 0) == 1) return true;
  gone_look_ns_ = now_ns + kTrustNumberNs;
  return false;
}

absl::Status PeerRegions::CheckIdentity() const {
  uint64_t identity = 0;
  const absl::Status read = Copy(/*is_read=*/true, reinterpret_cast<std::byte*>(&identity),
                                 sizeof(identity), table_->identity_address);
  if (!read.ok()) {
    return absl::UnimplementedError(
        StrCat("the peer's memory cannot be reached (", read.message(),
               "): see kernel.yama.ptrace_scope, or the container's rights"));
  }
  if (identity != table_->identity) {
    return absl::UnimplementedError(
        absl::StrCat("process ", process_id_, " is not the peer: other process-number namespace"));
  }
  return absl::OkStatus();
}

absl::Status PeerRegions::Copy(bool is_read, std::byte* local, uint64_t bytes,
                               uint64_t remote) const {
  while (bytes > 0) {
    iovec here = {local, bytes};
    iovec there = {InPeer(remote), bytes};
    const ssize_t copied = is_read ? process_vm_readv(process_id_, &here, 1, &there, 1, 0)
                                   : process_vm_writev(process_id_, &here, 1, &there, 1, 0);
    if (copied <= 0) {
      const int error = copied == 0 ? EIO : errno;
      if (error == ESRCH) return absl::UnavailableError("the peer's process is gone");
      return StatusFromErrno(error, "copying between processes");
    }
    local += copied;
    remote += static_cast<uint64_t>(copied);
    bytes -= static_cast<uint64_t>(copied);
  }
  return absl::OkStatus();
}

// Each word is read once: its owner could change it between a check and its use.
WEFT_INLINE PeerRegions::Range PeerRegions::PinRange(bool is_read, uint64_t key, uint64_t offset,
                                                     uint64_t bytes) {
  const RegionEntry& entry = table_->entries[PlaceOf(key)];
  pins_->of[PlaceOf(key)].pins.fetch_add(1);
  const uint64_t length = entry.length.load();
  const uint64_t base = entry.base.load();
  FilePlace place;
  place.identity = entry.file_identity.load();
  place.offset = entry.file_offset.load() + offset;
  place.descriptor = entry.file_descriptor.load();
  const bool allowed = (entry.rights.load() & (is_read ? kMayRead : kMayWrite)) != 0;
  const bool inside = offset <= length && bytes <= length - offset;
  if (key == 0 || entry.key.load() != key || !allowed || !inside) return {};
  return {/*granted=*/true,
          may_map_ ? files_.Find(place, bytes, /*for_writing=*/!is_read) : nullptr, base + offset};
}

// A copy's loads and stores are over before the target sees the pin gone. True: and then the key
// was still there, so the target has not given up waiting for the pin.
WEFT_INLINE bool PeerRegions::Unpin(uint64_t key) {
  pins_->of[PlaceOf(key)].pins.fetch_sub(1);
  return table_->entries[PlaceOf(key)].key.load() == key;
}

absl::Status PeerRegions::Transfer(bool is_read, std::byte* local, uint64_t bytes, uint64_t key,
                                   uint64_t offset) {
  if (ProcessIsGone()) return absl::UnavailableError("the peer's process is gone");
  const Range range = PinRange(is_read, key, offset, bytes);
  absl::Status status;
  if (range.mapped != nullptr) {
    CopyMapped(is_read, local, range.mapped, bytes);
  } else if (range.granted) {
    status = system_calls_.ok() ? Copy(is_read, local, bytes, range.address) : system_calls_;
  } else {
    status = absl::PermissionDeniedError("the peer has no such region, range or right");
  }
  if (!Unpin(key) && status.ok()) {
    status = absl::PermissionDeniedError("the peer has withdrawn its region during the copy");
  }
  return status;
}

bool PeerRegions::Move(bool is_read, MutableByteSpan local, const RemoteSpan& remote) {
  if (moves_to_look_-- == 0) [[unlikely]] {
    const bool gone = ProcessIsGone();
    moves_to_look_ = gone ? 0 : kMovesPerLook;
    if (gone) return false;
  }
  const Range range = PinRange(is_read, remote.key, remote.offset, remote.length);
  if (range.mapped != nullptr) [[likely]]
    CopyMapped(is_read, local.data(), range.mapped, remote.length);
  const bool is_there = Unpin(remote.key);
  return range.mapped != nullptr && is_there;
}

bool PeerRegions::TransferAtOnce(bool is_read, absl::Span<const weft::Transfer> pieces) {
  if (ProcessIsGone()) return false;
  bool all_granted = true;
  unsigned long left = 0;  // pieces for the system call, which stay pinned
  size_t bytes_left = 0;
  uint64_t keys[kMaxBatchTransfers];
  iovec here[kMaxBatchTransfers];
  iovec there[kMaxBatchTransfers];
  for (const weft::Transfer& piece : pieces) {
    const RemoteSpan& remote = piece.remote;
    std::byte* const local = piece.local->memory().data() + piece.local_offset;
    const Range range = PinRange(is_read, remote.key, remote.offset, remote.length);
    if (range.mapped == nullptr && range.granted) {
      keys[left] = remote.key;
      here[left] = {local, remote.length};
      there[left] = {InPeer(range.address), remote.length};
      ++left;
      bytes_left += remote.length;
      continue;
    }
    if (range.mapped != nullptr) CopyMapped(is_read, local, range.mapped, remote.length);
    const bool is_there = Unpin(remote.key);
    all_granted = range.granted && is_there;
    if (!all_granted) break;
  }
  bool copied = all_granted && (left == 0 || system_calls_.ok());
  if (copied && left > 0) {
    const ssize_t result = is_read ? process_vm_readv(process_id_, here, left, there, left, 0)
                                   : process_vm_writev(process_id_, here, left, there, left, 0);
    copied = result >= 0 && static_cast<size_t>(result) == bytes_left;
  }
  while (left > 0) {
    const bool is_there = Unpin(keys[--left]);
    copied = copied && is_there;
  }
  return copied;
}

}  // namespace weft
