// The receives of one domain, in the context that all of its endpoints share: how many are asked
// for, how many the provider holds, and what becomes of each one that completes.
//
// A connection asks for as many receives as its peer may have batches under way. Where a batch
// without a receive waits at its sender (tcp), fewer are posted, and connections share them.
//
// What a provider does with a batch that is longer than its receive differs:
//
//   tcp, up to 1.18      fails the receive (FI_ETRUNC) before anything is in it, and ends the
//                        connection
//   tcp, 1.19 and later  fills the receive, fails it (FI_ETRUNC), leaves the rest of the batch out,
//                        and goes on with the connection
//   verbs                fails the receive without a cause (EIO), fails the send at the other end,
//                        and ends the connection
//
// No error says whose receive it was. Where the connection goes on, the sink gets what the receive
// holds: the batch's own header says whose it is, and as the frames that the header counts are not
// all there, the sink ends that connection. Elsewhere a failed receive is not looked at: it holds
// an earlier batch, maybe of another connection.
//
// Threads: the engine's.
// Lifetime: the pool and the sink outlive this; what the provider holds it holds until the shared
//   context is closed.
// Errors: a receive that fails is replaced by the next TopUp().
// Invariants: stats.receives_posted = min(receives asked for, receives in the provider's hands).
//   The two differ by Limits::most_posted, by those to spare, and by receives that connections have
//   left behind, which stay posted for the next ones. needed() <= in the provider's hands, unless
//   it refuses some.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/inline.h"
#include "transport/link.h"
#include "transport/ofi/fabric.h"
#include "transport/ofi/slot_pool.h"
#include "transport/ofi/work.h"

namespace weft {

class PostedReceives {
 public:
  struct Limits {
    uint32_t most_asked;  // by all connections together
    // Posted at one time. Fewer than are asked for only where a batch without a receive waits at
    // its sender: memory for thousands of connections is then that of the busy ones.
    uint32_t most_posted = ~uint32_t{0};
    // Posted beyond those that peers may use: so many that were used are posted again only after
    // what they have brought about is sent.
    uint32_t spare = 0;
    // A receive that was too short for its batch holds the beginning of the batch when it fails.
    bool cut_off_is_filled = false;
  };

  PostedReceives(fid_ep* shared, SlotPool* pool, BatchSink* sink, const Limits& limits,
                 LinkDomainStats* stats)
      : shared_(shared), pool_(pool), sink_(sink), limits_(limits), stats_(stats) {}

  // RESOURCE_EXHAUSTED: `more` are more than may be asked for.
  absl::Status CheckRoom(uint32_t more) const;
  // Slots of the pool that Add(more) takes.
  uint64_t MissingFor(uint32_t more) const;
  // Asks for `more`, and posts them as far as the provider takes them: false if it takes too few.
  // REQUIRES: CheckRoom(more).
  bool Add(uint32_t more);
  void Remove(uint32_t fewer);

  // A receive has completed with `bytes` bytes. The sink sees them, and then the receive is posted
  // again, before anything is sent that the sink queued: a credit never runs ahead of its receive.
  // While there are receives to spare, it is not what the sink queued that waits, but the receive.
  WEFT_INLINE void OnDone(WorkId id, size_t bytes);
  // It has failed, with libfabric's `error`.
  void OnFailed(WorkId id, int error);

  // Whether TopUp() has something to do. `idle`: nothing has come in this turn.
  bool lacks(bool idle) const { return posted_ < (idle ? wanted_ : needed_); }
  void TopUp();

 private:
  // For so many as `target` asked for, without those to spare.
  uint32_t NeededFor(uint32_t target) const { return std::min(target, limits_.most_posted); }
  uint32_t WantedFor(uint32_t target) const;
  void SetTarget(uint32_t target);
  // The slot goes back to the pool when the provider has no room; TopUp() tries again.
  WEFT_INLINE bool Post(Slot* slot);
  void Count() { stats_->receives_posted = std::min(target_, posted_); }
  void CountWithheld() {
    Count();
    stats_->receives_withheld = target_ - stats_->receives_posted;
  }

  // Constant after construction.
  fid_ep* const shared_;
  SlotPool* const pool_;
  BatchSink* const sink_;
  const Limits limits_;
  LinkDomainStats* const stats_;

  uint32_t target_ = 0;  // asked for
  uint32_t needed_ = 0;  // posted at any time
  uint32_t wanted_ = 0;  // with those to spare
  uint32_t posted_ = 0;  // with those kept for later connections
};

WEFT_INLINE bool PostedReceives::Post(Slot* slot) {
  const ssize_t result = fi_recv(shared_, slot->data, pool_->slot_bytes(), slot->descriptor,
                                 FI_ADDR_UNSPEC, slot->id().context());
  if (result != 0) [[unlikely]] {
    ++stats_->eagain;
    pool_->Give(slot);
    return false;
  }
  slot->posted = true;
  ++posted_;
  return true;
}

WEFT_INLINE void PostedReceives::OnDone(WorkId id, size_t bytes) {
  Slot* slot = pool_->Find(id);
  if (slot == nullptr || !slot->posted) [[unlikely]]
    return;
  slot->posted = false;
  --posted_;
  Count();
  // A provider may tell the length of a batch that was longer than its receive.
  sink_->OnReceived({slot->data, std::min<size_t>(bytes, pool_->slot_bytes())}, /*by=*/nullptr);
  if (posted_ >= needed_) {
    pool_->Give(slot);
  } else if (Post(slot)) {
    Count();
  } else {
    CountWithheld();
  }
}

}  // namespace weft
