// The engine's side of RemoteRecords: slots of registered memory, and the operations that use them.
//
//   Of one operation, whose records move in chunks of up to kMaxBatchTransfers:
//     waiting   for slots. -> moving, as many records as there are slots for
//     moving    RemoteMemory has them.
//               -> moving again, or paused: some were torn; waiting: there are more; ended
//     paused    a timer runs. -> moving
//     ended     Finish() has been called; the object is its owner's again
//
// Threads: the engine's.
// Lifetime: made by RemoteRecords; ends with Shutdown(), then its RemoteMemory, then this.
// Invariants: a slot is free, belongs to one record of one operation, or is late: RemoteMemory has
//   it after the deadline. waiting_count_ operations wait: max_waiting, and besides those of the
//   other slots that have moved a chunk.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/memory/remote_records.h"
#include "rpc/operation/callback_operations.h"
#include "transport/engine.h"

namespace weft {

class RecordSlots;

// Reads `indices.size()` records into `out`, or writes one from `record`.
class RecordOperation : public ListNode<>, public Timer {
 public:
  // The end; may destroy it.
  virtual void Finish(absl::Status status) = 0;

  void SetRead(absl::Span<const uint64_t> wanted, std::byte* into) {
    indices = wanted;
    out = into;
    record = nullptr;
  }
  // Of one record, whose number is kept here.
  void SetOne(uint64_t index, std::byte* into, const std::byte* from) {
    one_ = index;
    SetRead(absl::Span<const uint64_t>(&one_, 1), into);
    record = from;
  }

  // Its end, which was not to come while it was started.
  void RunEarlyEnd() { Finish(std::move(end_)); }

  absl::Span<const uint64_t> indices;
  std::byte* out = nullptr;
  const std::byte* record = nullptr;  // not null: a write

 protected:
  ~RecordOperation() override = default;

  RecordSlots* slots_ = nullptr;

 private:
  friend class RecordSlots;
  struct Place {
    uint32_t slot = 0;
    uint32_t position = 0;  // of the record in `indices` and `out`, from first_ on
  };

  void OnTimer() final;  // the pause is over

  uint64_t one_ = 0;
  size_t first_ = 0;     // records before this one are done
  size_t chunk_ = 0;     // of those from first_ on, how many belong to the chunk
  uint32_t moving_ = 0;  // places in use
  uint32_t tries_ = 0;
  absl::Status end_;  // of one that has ended while it was started
  std::array<Place, kMaxBatchTransfers> places_;
};

// One that ends with a callback. Made by RecordSlots, which keeps finished ones for reuse.
class CallbackRecords final : public RecordOperation {
 public:
  void Finish(absl::Status status) override;
  // The end of one that was never handed to the engine.
  void Abandon(absl::Status status) { done(std::move(status)); }

  Function<void(absl::Status)> done;
  CallbackRecords* next_spare = nullptr;
};

class RecordSlots {
 public:
  // At most `max_waiting` operations wait for slots (RemoteMemoryOptions).
  RecordSlots(EngineCore& engine, RemoteMemory& memory, const RecordShape& shape, Slice slots,
              uint32_t max_waiting);
  ~RecordSlots();

  EngineCore& engine() { return engine_; }

  // How many slots records of this size get.
  static uint32_t CountFor(size_t record_bytes);

  // Its Finish() does not come inside, but when everything is shutting down, or when max_waiting
  // that ended so wait for theirs. `valid`: if not OK, it ends with that. RESOURCE_EXHAUSTED:
  // max_waiting operations wait already.
  void Start(RecordOperation& operation, const absl::Status& valid);

  CallbackRecords* NewOperation() {
    CallbackRecords* const spare = spare_.Take();
    return spare != nullptr ? spare : new CallbackRecords;
  }
  void Recycle(CallbackRecords* operation) { spare_.Give(operation); }

  // Ends what is not on its way with CANCELLED; what is, ends when its transfer has.
  void Shutdown();

  const RecordStats& stats() const { return stats_; }

 private:
  friend class RecordOperation;

  // Spare operations that are kept: as many as a busy connection has outstanding. About 800 bytes
  // each.
  static constexpr uint32_t kMaxSpareOperations = 128;

  void EndEarly(RecordOperation& operation, absl::Status status);
  absl::Status TooManyWait() const;
  void Wait(RecordOperation& operation);
  void Serve();
  void Begin(RecordOperation& operation);
  void Move(RecordOperation& operation);
  void OnMoved(RecordOperation& operation, const absl::Status& status);
  void Collect(RecordOperation& operation);
  void MoveAgain(RecordOperation& operation);
  void OnPauseOver(RecordOperation& operation);
  void ReleaseAll(RecordOperation& operation);
  void ReleaseLater(RecordOperation& operation);
  void End(RecordOperation& operation, absl::Status status);

  std::byte* At(uint32_t slot) const { return slice_.bytes().data() + slot * shape_.bytes; }

  // Constant after construction.
  EngineCore& engine_;
  RemoteMemory& memory_;
  const RecordShape shape_;
  const Slice slice_;
  const uint32_t max_waiting_;

  std::vector<uint32_t> free_;  // capacity: all slots
  IntrusiveList<RecordOperation> waiting_;
  uint32_t waiting_count_ = 0;
  IntrusiveList<RecordOperation> paused_;
  std::array<RemotePiece, kMaxBatchTransfers> pieces_;  // of the chunk that is being started
  EarlyEnds<RecordOperation> early_ends_;
  SpareList<CallbackRecords, kMaxSpareOperations> spare_;
  bool closing_ = false;
  RecordStats stats_;
};

}  // namespace weft
