// One operation on remote memory, from its start to its end.
//
//   States, and who moves them: RemoteMemoryCore, on the engine's thread.
//     kNew      filled in by RemoteMemory. -> all others: Start()
//     kWaiting  for a connection, a lease, or room; nothing was sent. -> kPosted, kDone
//     kPosted   on its way. -> kDone, kLate: its deadline; kDone: OnComplete()
//     kWritten  an acknowledged write that is over here, and waits for room to ask whether it has
//               arrived. -> kPosted, kDone
//     kLate     its deadline has passed, and its callback has been called; the transport may still
//               touch the local memory, which is pinned. -> kDone: OnComplete()
//     kDone     its callback has been called, and the object is RemoteMemoryCore's again.
//
// Threads: filled in on any; else the engine's.
// Lifetime: made by RemoteMemoryCore, which keeps finished ones for reuse. What `pieces` names may
//   go when the operation has been started.
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
#include "transport/engine.h"
#include "transport/operation.h"

namespace weft {

class RemoteMemoryCore;
struct RemoteDeadlineTag;

class RemoteOperation final : public ListNode<>,
                              public ListNode<RemoteDeadlineTag>,
                              public Operation,
                              public AtomicOperation {
 public:
  enum class Kind : uint8_t { kRead = 1, kWrite = 2, kFetchAdd = 3, kCompareSwap = 4 };
  enum class State : uint8_t {
    kNew = 1,
    kWaiting = 2,
    kPosted = 3,
    kWritten = 4,
    kLate = 5,
    kDone = 6
  };

  bool moves() const { return kind == Kind::kRead || kind == Kind::kWrite; }
  // A message that is started behind it must not arrive before it.
  bool is_ordered_write() const { return kind == Kind::kWrite && !unordered; }

  // The end: calls the callback, now or later, and gives this back.
  void Finish(absl::Status status);
  // Calls the callback; `recycle`: gives this back before. REQUIRES: it has not been called.
  void CallBack(absl::Status status, bool recycle);
  // `pieces` may go from now on.
  void KeepPieces();
  // Its callback, which was not to run while it was started.
  void RunEarlyEnd() { Finish(std::move(early_status)); }

  Kind kind = Kind::kRead;
  State state = State::kNew;
  bool acknowledged = false;  // a write that ends when the bytes have arrived
  bool proof_asked = false;   // the proof behind it is on its way
  bool unordered = false;     // a write that no message waits for
  bool holds_calls = false;   // a write that waits: calls that come later must not overtake it
  absl::Span<const RemotePiece> pieces;  // kRead, kWrite
  uint64_t offset = 0;                   // the others; of an acknowledged write: its last byte
  uint64_t operand = 0;                  // to add; or expected
  uint64_t desired = 0;
  uint64_t before = 0;
  uint64_t deadline_ns = 0;  // on a list of those; of a late one: when the connection is given up
  uint64_t proves = 0;       // of a proof or an atomic: so many writes had ended before it
  uint64_t late_number = 0;  // of a late one: counted from 1, in their order
  RemoteMemoryCore* core = nullptr;

  RemoteOperation* next_spare = nullptr;
  Function<void(absl::Status)> done;                          // one of both
  Function<void(absl::StatusOr<uint64_t>)> done_with_number;  // atomics
  absl::Status early_status;  // of one that ended while it was started; the callback is still due

 private:
  void OnComplete(const absl::Status& status) override;
  void OnComplete(const absl::Status& status, uint64_t found) override;

  std::vector<RemotePiece> kept_;  // keeps its capacity from one use to the next
};

}  // namespace weft
