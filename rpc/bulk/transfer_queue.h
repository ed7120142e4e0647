// The transfers of a connection's calls that wait for their turn.
//
// A connection has a limited number of one-sided operations outstanding, and the queue a limited
// number of bytes (in_flight_limit.h); transfers beyond either wait here: the most urgent leaves
// first, and among those the oldest (a waiting one may leave the queue at any time). There are
// never more than ServerBulk::kMaxTransfers for each call.
//
// A push holds up no message where the path can do without (TransferKind::kWriteUnordered): its own
// reply is sent behind its end, and those of other calls need not wait for it.
//
// Where a write is over when its bytes wait to be sent (ofi_tcp), large pushes beside others are
// acknowledged by the peer, so that the bound is one of what is on its way; their replies leave a
// round trip later. One that is alone has no need of it.
//
// A transfer that is not over in its time (LinkOptions::transfer_timeout_ns, counted for all that
// is posted before it and for itself) ends its connection, and with that all of them: only then is
// its memory the handler's again.
//
// Threads: the engine's. Lifetime: its host's, the ServerConnection.
// Invariants: as long as one waits, another is posted, or OnWritable() will come.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "core/priority_lists.h"
#include "core/timer_wheel.h"
#include "rpc/bulk/in_flight_limit.h"
#include "rpc/bulk/transfer.h"
#include "transport/transport.h"

namespace weft {

class TransferQueue final : private Timer {
 public:
  class Host {
   public:
    // Around the end of a transfer, with which the call and its connection may end.
    virtual void BeginEnd() = 0;
    virtual void FinishEnd() = 0;  // the queue may be gone afterwards
    // nullptr: gone.
    virtual Connection* connection() = 0;
    virtual TimerWheel& timers() = 0;
    virtual uint64_t now_ns() = 0;

   protected:
    ~Host() = default;
  };

  explicit TransferQueue(Host* host) : host_(host), watch_(this) {}

  // What a transfer of a call that is over may still take, until it ends its connection: its
  // handler may wait for it. A second is more than any transfer takes that is not stuck, but for
  // those that have no end in any caller's time.
  static constexpr uint64_t kLateTransferNs = kNsPerSec;

  // REQUIRES: nothing has been started.
  void SetInFlightLimit(const InFlightLimit& limit, uint64_t transfer_timeout_ns = 0) {
    limit_ = limit;
    transfer_timeout_ns_ = transfer_timeout_ns;
  }

  // Posts it, or keeps it until there is room. REQUIRES: host->connection().
  void Start(BulkTransfer& transfer);
  // The connection may take more.
  void Pump();
  // Its call is over: it is, if it was posted and has not ended, in kLateTransferNs at the latest.
  void Hurry(BulkTransfer& transfer);
  // The provider has none.
  bool none_posted() const { return pushed_bytes_ == 0 && fetched_bytes_ == 0; }

 private:
  friend class BulkTransfer;

  // False: not now.
  bool TryPost(BulkTransfer& transfer);
  uint64_t& PostedBytes(bool push) { return push ? pushed_bytes_ : fetched_bytes_; }
  bool IsWithinLimit(bool push, uint64_t bytes);
  TransferKind KindOf(const BulkTransfer& transfer) const;
  // Of all that are posted, the next that is to be over.
  class Watch final : public Timer {
   public:
    explicit Watch(TransferQueue* queue) : queue_(*queue) {}

   private:
    void OnTimer() override { queue_.EndOverdue(); }
    TransferQueue& queue_;
  };

  void EndBy(BulkTransfer& transfer, uint64_t most_ns);
  void WatchUntil(uint64_t deadline_ns);
  void EndOverdue();
  void EndSoon(BulkTransfer& transfer);
  // Timer: some are done.
  void OnTimer() override;
  void End(BulkTransfer& transfer, const absl::Status& status);
  void SendReplies();

  Host* const host_;
  InFlightLimit limit_ = InFlightLimitOf(PathKind::kSim);
  uint64_t transfer_timeout_ns_ = 0;  // 0: never
  uint64_t pushed_bytes_ = 0;         // posted and not ended
  uint64_t fetched_bytes_ = 0;        // the same, the other way
  uint64_t unreplied_bytes_ = 0;      // ended since replies were sent last
  PriorityLists<BulkTransfer, Priority, kPriorities> waiting_;
  IntrusiveList<BulkTransfer, PostedTransferTag> posted_;  // those that were not done at once
  Watch watch_;
  // Done inside the call that posted them; they end with the next timer, oldest first.
  BulkTransfer* first_done_ = nullptr;
  BulkTransfer* last_done_ = nullptr;
};

}  // namespace weft
