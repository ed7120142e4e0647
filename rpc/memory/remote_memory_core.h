// The engine's side of a RemoteMemory: its lease, when it has one, and the operations that wait.
//
//   Of the lease (Lease::State says the same of the protocol):
//     no connection      -> ask, when there is one and somebody waits
//     asked              -> held: OnGranted(). refused, none: OnEnded()
//     held               operations are posted. In the second half of its time it is renewed, by
//                        the next operation that begins or, while one is under way, by the timer.
//                        Not used, it lapses. -> none: OnEnded(), the connection is lost
//     refused            for good: every operation ends with the owner's answer
//
// A renewal makes the owner's registration last longer, under its key: so it is as good for what is
// posted as for what comes. The timer is set for it when something gets under way, unless it fires
// earlier anyway, and is not set again when it fires and nothing is: most operations do not touch
// it. It is the engine's: a holder that nobody drives, or that stands still, renews nothing.
//
// Deadlines. All operations have the same time, so those that have not ended stand in a list in the
// order of their deadlines, and the timer watches the first. One that has not been sent ends there
// and is gone. One that is posted has its callback called and is late: the transport has it, and
// its local memory, until it completes, as all do at the latest when the connection ends, which
// happens kLatePatienceUs after the first deadline of one that is late.
//
// Acknowledged writes go on as their proofs (write_proofs.h) when the transport is done with them.
//
// Threads: the engine's, but for Check(), HoldWhileLate() and what says so.
// Lifetime: made by RemoteMemory; ends by Shutdown(), which lets what is posted end and
//   then deletes it.
// Invariants: an operation is waiting, posted, written, late, deferred or done; waiting_count_ <=
//   max_waiting; operations that hold calls back are waiting ones; the memory of a late one is
//   pinned.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/tally.h"
#include "core/timer_wheel.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/connection_watcher.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/memory/remote_operation.h"
#include "rpc/memory/write_proofs.h"
#include "rpc/operation/callback_operations.h"
#include "transport/engine.h"
#include "transport/lease.h"
#include "transport/transport.h"

namespace weft {

class RemoteMemoryCore final : private ConnectionWatcher, private Lease, private Timer {
 public:
  RemoteMemoryCore(EngineCore& engine, ClientConnection& client, const RegionHandle& handle,
                   const RemoteMemoryOptions& options);

  EngineCore& engine() { return engine_; }

  // What is wrong with an operation, as far as this side can tell. Any thread.
  absl::Status Check(const RemoteOperation& operation) const;

  // Begins to watch the connection, unless it does; the first operation asks for a lease. Start()
  // does so too.
  void Watch();
  // Watch(), and asks for a lease; `done` hears the first outcome.
  void Open(Function<void(absl::Status)> done);

  // Carries a read or write out inside the call: true, where the owner's memory is mapped into this
  // process and nothing waits before it. False: nothing is said of why; Begin() it. The clock is
  // not looked at: over mapped memory the owner's table is asked each time whether the lease still
  // holds. One in kDonePerTurn is left to Begin(), which renews the lease in time. REQUIRES: the
  // driver's.
  bool MoveNow(RemoteOperation::Kind kind, uint64_t offset, const Slice& local);

  // False: no operation is late, and `then` is as it was. True: it runs on the engine's thread when
  // none of those is left that are late now. Any thread.
  [[nodiscard]] bool HoldWhileLate(Function<void()>& then);

  // A write is on its way, or has ended and may not have arrived. Any thread, which sees what it
  // knows to have ended.
  bool has_unproven_writes() const { return proofs_.has_unproven(); }
  // No lease could be had when one was asked for last: there were too many. Any thread.
  bool lacks_lease() const { return lacks_lease_; }
  // Asks the owner for what is missing of both: a proof, a lease.
  void Recover();

  // Hands `task` to another engine. Where that one's inbox is full it tries again later: a turn
  // that waited for another engine's would keep this one's peers waiting, and both for ever if the
  // other one waited for this.
  void Deliver(EngineCore& to, Function<void()> task);

  // Posts it, lets it wait, or ends it. `valid`: if not OK, it ends with that.
  void Start(RemoteOperation& operation, const absl::Status& valid);
  // Start() for a caller that waits. kDone: it was carried out inside this call, and its callback
  // does not come; Drop() it. kPending: its callback comes, or has come.
  Posted Begin(RemoteOperation& operation);
  // The same as Start(), but its callback does not run inside.
  void StartFromCallback(RemoteOperation& operation, const absl::Status& valid);
  // The same, but kDone is the end: its callback does not come, and it is recycled.
  Posted BeginFromCallback(RemoteOperation& operation, const absl::Status& valid);

  RemoteOperation* NewOperation() {
    RemoteOperation* const spare = spare_.Take();
    return spare != nullptr ? spare : new RemoteOperation;
  }
  // Takes one back whose callback does not come.
  void Drop(RemoteOperation& operation) {
    operation.done = nullptr;
    operation.done_with_number = nullptr;
    Recycle(&operation);
  }
  void Recycle(RemoteOperation* operation) {
    operation->state = RemoteOperation::State::kNew;
    operation->acknowledged = operation->proof_asked = operation->unordered = false;
    spare_.Give(operation);
  }

  // Calls started from now on wait until as many ReleaseCalls() have come. Any thread; release on
  // the engine.
  void HoldCalls() { client_.calls().HoldCalls(); }
  void ReleaseCalls() { client_.calls().ReleaseCalls(); }

  // Between the two, an operation is on its way here through the engine's inbox. Any thread.
  void BeginHandOver() { handed_over_.fetch_add(1, std::memory_order_relaxed); }
  void EndHandOver() { handed_over_.fetch_sub(1, std::memory_order_relaxed); }
  bool handing_over() const { return handed_over_.load(std::memory_order_relaxed) != 0; }

  void Flush() { client_.calls().FlushUnlessInTurn(); }

  // After an operation that Begin() has done: whether the engine is to have a turn all the same. A
  // thread that does nothing else would keep all else on the engine waiting, the lease's renewal
  // too.
  bool TurnIsDue() const { return done_since_turn_ == 0; }

  // Ends what waits with CANCELLED, waits for what is posted, gives the lease back, deletes this,
  // and finishes `gone`.
  void Shutdown(Waiter* gone);

  // --- for operations ---------------------------------------------------------------------------

  void OnOperationComplete(RemoteOperation& operation, const absl::Status& status);
  // True: it has ended too early for its callback, which will come from a timer, with `*status`.
  bool Defer(RemoteOperation& operation, absl::Status* status);

 private:
  // Spare operations that are kept: as many as a busy connection has outstanding. About 300 bytes
  // each.
  static constexpr uint32_t kMaxSpareOperations = 256;
  // From the deadline of an operation until its connection is given up, if the transport still has
  // its memory by then: as long as a server has to give memory back (kReleasePatienceUs).
  static constexpr uint64_t kLatePatienceUs = 3'000'000;
  // Until Deliver() tries again: an engine that turns at all makes room for 64 in a microsecond.
  static constexpr uint64_t kDeliverAgainNs = 1'000'000;
  // An idle turn takes as long as two operations that are done at once (about 0.1 us): with 64 of
  // them to a turn, it costs each 2 ns.
  static constexpr uint32_t kDonePerTurn = 64;

  ~RemoteMemoryCore() = default;

  // ConnectionWatcher.
  void OnConnected(Connection& connection) override;
  void OnConnectionLeaving(const absl::Status& why) override;
  bool IsBusy() const override { return posted_ > 0; }
  void OnConnectionLost() override;
  void OnNoConnection(const absl::Status& why) override;
  void OnRoom() override;
  // Timer: of deadlines, and of the lease while something is under way.
  void OnTimer() override;
  // Lease.
  void OnGranted() override;
  void OnEnded(const absl::Status& why) override;

  absl::Status CheckPieces(const RemoteOperation& operation) const;
  absl::Status CheckAtomic(const RemoteOperation& operation) const;
  absl::Status CheckRights(const RemoteOperation& operation) const;

  bool wanted() const { return !waiting_.empty() || on_opened_; }
  bool in_use() const { return posted_ > 0 || !waiting_.empty(); }
  // What was posted before is over where nothing is left.
  void CountPosted() {
    if (posted_++ == 0) outlived_ = false;
  }
  bool Usable();
  void Renew();
  void LookAtLeaseHalfThrough();
  uint64_t RenewalDueNs() const;
  void RenewIfDue(uint64_t now_ns);
  void GiveBack();
  void Ask();
  void Refuse(const absl::Status& why, bool for_good);

  absl::StatusOr<Posted> Post(RemoteOperation& operation, bool* room);
  absl::StatusOr<Posted> Submit(RemoteOperation& operation);
  absl::StatusOr<Posted> SubmitPieces(RemoteOperation& operation);
  void Enqueue(RemoteOperation& operation);
  void AskForProof(RemoteOperation& operation);
  absl::StatusOr<Posted> PostProof(RemoteOperation& operation);
  void AskForProofs();
  void AskTheQuestion();
  void EndTheQuestion();
  void DeliverAgain();
  void WatchDeadline(RemoteOperation& operation);
  void Expire(RemoteOperation& operation);
  void EndLate(RemoteOperation& operation);
  void WakeBy(uint64_t due_ns);
  void ArmTimer();
  void Leave(RemoteOperation& operation);
  void Pump();
  void End(RemoteOperation& operation, absl::Status status);
  void FailWaiting(const absl::Status& status);
  void Report(const absl::Status& opened);
  absl::Status LossText(const RemoteOperation& operation, const absl::Status& why) const;
  absl::Status RefusalText(const absl::Status& why, const char* what) const;
  void LookForTheEnd();

  // Constant after construction.
  EngineCore& engine_;
  ClientConnection& client_;
  const RegionHandle handle_;
  const uint64_t size_;
  const Rights rights_;
  const RemoteMemoryOptions options_;

  std::atomic<uint32_t> handed_over_ = 0;  // any thread

  bool watching_ = false;
  Connection* connection_ = nullptr;
  absl::Status refused_;  // OK: not
  bool leaving_ = false;  // refused_ until the connection is lost: its server is about to shut down
  bool renewing_ = false;
  bool giving_back_ = false;
  bool outlived_ = false;     // a lease has ended before what was posted; of which some may be left
  uint64_t renew_at_ns_ = 0;  // of a lease that is held
  Function<void(absl::Status)> on_opened_;

  using Deadlines = IntrusiveList<RemoteOperation, RemoteDeadlineTag>;
  Deadlines watched_;  // waiting and posted ones, if there is a timeout
  // Written with reclaim_mutex_ held, and read so by other threads. Nothing else is called
  // meanwhile.
  Deadlines late_;
  uint64_t late_count_ = 0;  // that there have been
  // Each with the last late one that it waits for; in order. Guarded by reclaim_mutex_.
  std::deque<std::pair<uint64_t, Function<void()>>> when_reclaimed_;
  std::mutex reclaim_mutex_;
  std::deque<std::pair<EngineCore*, Function<void()>>> undelivered_;

  IntrusiveList<RemoteOperation> waiting_;
  uint32_t waiting_count_ = 0;
  uint32_t posted_ = 0;                     // late and written ones among them
  IntrusiveList<RemoteOperation> written_;  // kWritten
  WriteProofs proofs_;
  Tally<bool> lacks_lease_;
  uint32_t done_since_turn_ = 0;  // operations inside their call, since TurnIsDue(); < kDonePerTurn
  bool pumping_ = false;
  std::array<Transfer, kMaxBatchTransfers> transfers_;  // of the batch that is being posted

  EarlyEnds<RemoteOperation> early_ends_;
  SpareList<RemoteOperation, kMaxSpareOperations> spare_;
  Waiter* gone_ = nullptr;  // Shutdown() has been called
};

}  // namespace weft
