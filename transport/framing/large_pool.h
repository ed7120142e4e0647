// Memory for large messages: page-aligned buffers in sizes of powers of two, reused, bounded.
//
// Buffers are mapped, and kept when they are released, so that the next message of that size meets
// pages that are already there. Everything the pool holds, in use or kept, counts towards
// `limit_bytes`; kept buffers make room before anybody is refused.
//
// Two ways to wait, for two kinds of users:
//   - a claim (AcquireOrWait) is served in the order of claims: the buffer is handed to it. A
//     connection has one at a time: so they take turns.
//   - a watcher (Watch) is told once that there is room for its client again, and tries again.
// A buffer may also leave the engine's hands (Lend()): whoever has it may read it as long as they
// like, on any thread, and it comes back by itself. At most half of the pool is lent, and never so
// much that the largest message would not fit into the rest: so nobody here waits for what others
// keep.
//
// An eighth is kept for buffers up to kSmallBytes: they do not wait for those who hold large ones.
// A claim for 64 MiB, in turn, is not starved by a stream of small ones: while it waits, they have
// only the eighth. (A pool of little more than the largest message keeps less, or nothing: then
// they wait for each other.)
//
// One client (PathInfo::client, over all its connections; those that this side has dialed are one)
// leaves others room for the largest message and that eighth: so one that never lets its messages
// be read, or never takes them, holds up its own. MayHave() is the rule: with so much more
//   - all clients leave that room, or
//   - the client has its share of the eighth at most, so that many small ones go on together, or
//   - it is all that the client has.
// What a client claims beyond its part waits apart, behind what it has apart already, and is in
// nobody's way. With each release a few clients with something apart are looked at, in turn.
//
//   a claim    waits for           until
//   in line    memory              it is served; or it is first, and its client has had its part:
//                                  then it goes apart
//   apart      its client's part   its client's turn comes, and there is some of it
//
// Use one pool for sending and another for receiving: two peers that filled one pool each with
// messages to each other could never receive them.
//
// Threads: one engine's; what Lend() returns any.
// Lifetime: outlives its buffers' users, but for those of lent ones; destroyed before the
//   LinkDomain.
// Errors: full is nullptr, never an abort. Free buffers are poisoned under AddressSanitizer.
// Invariants: bytes in use + bytes kept <= limit_bytes. Lent bytes are in use. Large bytes in use
//   <= limit_bytes - reserve. The largest message fits beside what is lent. kMaxBuffers are in use
//   and not lent at most.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "core/client_shares.h"
#include "core/fork_guard.h"
#include "core/intrusive_list.h"
#include "transport/link.h"
#include "transport/mapped_memory.h"
#include "transport/region.h"

namespace weft {

// Default bound of one pool: three of the largest messages at a time, two of one client's, and many
// small ones.
inline constexpr size_t kDefaultLargePoolBytes = size_t{4} * kMaxMessageBytes;

struct LentBufferTag;

// One buffer. The local registration, where the pool makes one, lives as long as the memory, but
// for a lent one that outlives the pool, and where a user closes it earlier: then the buffer is not
// used again.
struct LargeBuffer : ListNode<LentBufferTag> {
  explicit LargeBuffer(MappedMemory mapped) : mapping(std::move(mapped)) {}

  const MappedMemory mapping;
  MutableByteSpan memory;         // the whole size class
  std::unique_ptr<Region> local;  // null in a pool without registration
  LargeBuffer* next = nullptr;    // while kept
  uint64_t client = 0;            // while in use: whose part it is of
};

struct LargeClaimTag;
struct LargeWatcherTag;

// Waits for a buffer of `bytes`. Leaves the queue when destroyed.
class LargeClaim : public ListNode<LargeClaimTag> {
 public:
  // The buffer is the claim's now; the claim is out of the queue. nullptr: the system has no memory
  // for it though the pool is empty, so that waiting is in vain. Called from Release() or from
  // Withdraw() of another claim; the pool may be called inside.
  virtual void OnBuffer(LargeBuffer* buffer) = 0;

 protected:
  ~LargeClaim() = default;

 private:
  friend class LargePool;
  size_t bytes_ = 0;
  uint64_t client_ = 0;
};

// Waits for room to try again. Leaves the queue when destroyed.
class LargeWatcher : public ListNode<LargeWatcherTag> {
 public:
  // Do not call the pool from inside.
  virtual void OnReleased() = 0;

 protected:
  ~LargeWatcher() = default;
};

class LargePool {
 public:
  static constexpr size_t kSmallestBytes = size_t{16} << 10;  // a class saves less than it costs
  static constexpr size_t kLargestBytes = kMaxMessageBytes;
  // Buffers up to this are small: 32 at a time in the reserve of a pool of the default size.
  static constexpr size_t kSmallBytes = size_t{1} << 20;
  // Half of the regions that one engine can have open for its peers on shared memory (4,096): each
  // message that waits for its reader has one, and leases have the other half
  // (ExportTable::kMaxEngineLeases). So no buffer counts for less than limit_bytes / kMaxBuffers.
  static constexpr size_t kMaxBuffers = 2048;

  // `domain`: registers each buffer for local use; null: buffers are not registered, and lie where
  // peers of the same host that read them can map them (mapped_memory.h).
  // REQUIRES: limit_bytes >= kLargestBytes, so that every message fits into an empty pool.
  LargePool(LinkDomain* domain, size_t limit_bytes);
  ~LargePool();
  LargePool(const LargePool&) = delete;
  LargePool& operator=(const LargePool&) = delete;

  // A buffer of at least `bytes` for this client, or nullptr: the pool is full, claims are waiting,
  // the client has its part, or the system has no memory.
  // REQUIRES: bytes <= kLargestBytes.
  LargeBuffer* Acquire(size_t bytes, uint64_t client);

  // The same; where it is nullptr, `claim` has been queued.
  LargeBuffer* AcquireOrWait(size_t bytes, uint64_t client, LargeClaim* claim);
  // Takes a claim out of the queue, if it is there; those behind it may be served.
  void Withdraw(LargeClaim* claim);

  // Tells `watcher` once, with a release that leaves room for its client, a few with each. Nothing
  // to do if it waits already.
  void Watch(LargeWatcher* watcher, uint64_t client);

  void Release(LargeBuffer* buffer);
  // Serves claims that have room since Lend(), which serves none: its caller may be in the middle
  // of a delivery.
  void ServeClaims();

  // The buffer stays as it is until the last copy of what is returned is gone, on whatever thread,
  // and whether the pool is still there or not; then it is released. Meanwhile it is in nobody's
  // part: it is this side that has it. Null: too much is lent, and the buffer stays the caller's.
  // REQUIRES: it is in use.
  std::shared_ptr<const void> Lend(LargeBuffer* buffer);

  size_t limit_bytes() const { return limit_bytes_; }
  size_t in_use_bytes() const { return in_use_bytes_; }
  size_t kept_bytes() const { return kept_bytes_; }
  // That have not come back, or are not yet seen to have.
  size_t lent_bytes() const { return lent_bytes_; }
  void CheckInvariants() const;

 private:
  static constexpr size_t kClasses = 13;  // 16 KiB << 0..12 = 16 KiB..64 MiB
  static_assert(kSmallestBytes << (kClasses - 1) == kLargestBytes);
  // Clients that are looked at with one release, and what of each may go on then, at some 50 ns
  // each. Fewer: those that have room wait for further releases; more: one with a thousand
  // connections that wait costs others time.
  static constexpr int kMostLooks = 16;

  // Where lent buffers come back to.
  struct Lent {
    std::mutex mutex;  // of all but `some_back`
    bool pool_gone = false;
    IntrusiveList<LargeBuffer, LentBufferTag> out;
    IntrusiveList<LargeBuffer, LentBufferTag> back;
    std::atomic<bool> some_back{false};
    const uint32_t forks = ForkCount();

    void TakeBack(LargeBuffer* buffer);
  };

  using Claims = IntrusiveList<LargeClaim, LargeClaimTag>;

  // What waits apart, of one client.
  struct Apart : ListNode<> {
    explicit Apart(uint64_t client) : client(client) {}
    const uint64_t client;
    Claims claims;
    IntrusiveList<LargeWatcher, LargeWatcherTag> watchers;
  };

  void ReleaseThoseBack();
  static size_t ClassOf(size_t bytes);
  Claims& ClaimsOf(size_t bytes) { return bytes > kSmallBytes ? large_claims_ : small_claims_; }
  uint64_t Counted(size_t bytes) const;
  // `coming`: what is about to be its own beside that.
  bool MayHave(uint64_t client, size_t bytes, uint64_t coming = 0) const;
  bool MayTake(size_t bytes) const;
  bool HasApart(uint64_t client) const;
  Apart& ApartOf(uint64_t client);
  LargeBuffer* Take(size_t size_class, uint64_t client);
  void GiveShare(const LargeBuffer& buffer);
  void Keep(LargeBuffer* buffer);
  LargeBuffer* Make(size_t bytes);
  bool MakeRoom(size_t bytes);
  void Destroy(LargeBuffer* buffer);
  void LookAtThoseApart();
  void Serve(Claims& claims);

  LinkDomain* const domain_;
  const size_t limit_bytes_;
  const size_t reserve_bytes_;
  const size_t left_bytes_;  // to other clients
  MemoryArena arena_;
  size_t in_use_bytes_ = 0;
  size_t large_bytes_ = 0;  // of those in use, in buffers that are not small
  size_t kept_bytes_ = 0;
  size_t lent_bytes_ = 0;
  ClientShares shares_;  // of what is in use and not lent: Counted()
  const std::shared_ptr<Lent> lent_ = std::make_shared<Lent>();
  std::array<LargeBuffer*, kClasses> kept_{};  // a stack for each class
  Claims large_claims_;
  Claims small_claims_;
  std::unordered_map<uint64_t, Apart> apart_;  // by client
  IntrusiveList<Apart> turns_;                 // all of these
};

}  // namespace weft
