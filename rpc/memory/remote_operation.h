// One operation on remote memory, from its start to its end.
//
//   States, and who moves them: RemoteMemoryCore, on the engine's thread.
//     kNew      filled in by RemoteMemory. -> all others: Start()
//     kWaiting  for a connection, a lease, or room; nothing was sent. -> kPosted, kDone
//     kPosted   on its way. -> kDone: OnComplete()
//     kDone     Finish() has been called; the object is its owner's again.
//
// Threads: made and awaited on any; else the engine's.
// Lifetime: the owner keeps it until Finish(), and what `pieces` names while kNew and kWaiting.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/function.h"
#include "core/intrusive_list.h"
#include "rpc/memory/remote_memory.h"
#include "rpc/operation/blocked_caller.h"
#include "transport/engine.h"
#include "transport/operation.h"

namespace weft {

class RemoteMemoryCore;

class RemoteOperation : public ListNode<>, public Operation, public AtomicOperation {
 public:
  enum class Kind : uint8_t { kRead = 1, kWrite = 2, kFetchAdd = 3, kCompareSwap = 4 };
  enum class State : uint8_t { kNew = 1, kWaiting = 2, kPosted = 3, kDone = 4 };

  // The end; may destroy it.
  virtual void Finish(absl::Status status) = 0;
  // It has to wait longer than its caller keeps the pieces.
  virtual void KeepPieces() {}

  bool moves() const { return kind == Kind::kRead || kind == Kind::kWrite; }

  Kind kind = Kind::kRead;
  State state = State::kNew;
  bool holds_calls = false;  // a write that waits: calls that come later must not overtake it
  absl::Span<const RemotePiece> pieces;  // kRead, kWrite
  uint64_t offset = 0;                   // the others
  uint64_t operand = 0;                  // to add; or expected
  uint64_t desired = 0;
  uint64_t before = 0;
  RemoteMemoryCore* core = nullptr;

 protected:
  ~RemoteOperation() = default;

 private:
  void OnComplete(const absl::Status& status) final;
  void OnComplete(const absl::Status& status, uint64_t found) final;
};

// One whose caller waits for it.
class BlockingOperation final : public RemoteOperation, public BlockedCaller {
 public:
  using BlockedCaller::BlockedCaller;
  void Finish(absl::Status status) override { GoOn(std::move(status)); }
};

// One that ends with a callback. Made by RemoteMemoryCore, which keeps finished ones for reuse.
class CallbackOperation final : public RemoteOperation {
 public:
  void Finish(absl::Status status) override;
  void KeepPieces() override;
  // The end of one that was never handed to the engine.
  void Abandon(absl::Status status);

  // Its callback, which was not to run while it was started.
  void RunEarlyEnd() { Finish(std::move(early_status)); }

  CallbackOperation* next_spare = nullptr;
  Function<void(absl::Status)> done;                          // one of both
  Function<void(absl::StatusOr<uint64_t>)> done_with_number;  // atomics
  absl::Status early_status;  // of one that ended while it was started; the callback is still due

 private:
  std::vector<RemotePiece> kept_;  // keeps its capacity from one use to the next
};

}  // namespace weft
