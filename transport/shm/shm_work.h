// What an shm link has taken and not carried out at once: an operation for which the turn had no
// time left, one that waits for room to ask the peer, and whatever came behind them.
//
// Threads: the engine's.
// Invariants: a work is on at most one list: its link's waiting works, or the domain's operations
//   that have only to complete.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/block_memory.h"
#include "core/intrusive_list.h"
#include "core/slab.h"
#include "transport/operation.h"

namespace weft {

class ShmLink;

struct ShmWork : ListNode<> {
  explicit ShmWork(bool send) : is_send(send) {}
  const bool is_send;
};

using ShmWorkList = IntrusiveList<ShmWork>;

// A batch that was sent behind operations: it leaves the ring, where what they ask goes first, and
// waits in memory of this process alone. A link has one at most.
struct ShmWaitingBatch : ShmWork {
  ShmWaitingBatch() : ShmWork(/*send=*/true) {}
  Block data;          // slot_bytes, once one has waited
  uint32_t bytes = 0;  // 0: none waits
};

struct ShmOperation : ShmWork {
  ShmOperation() : ShmWork(/*send=*/false) {}

  ShmLink* link = nullptr;
  Operation* user = nullptr;
  std::byte* local = nullptr;
  uint64_t remote_key = 0;
  uint64_t remote_offset = 0;
  uint64_t bytes = 0;
  uint64_t bytes_done = 0;
  bool is_read = false;
  // Of one that the peer is asked for (asked_copies.h).
  bool asks = false;
  bool all_asked = false;     // it has left the line, and ends with its last answer
  uint32_t pieces_asked = 0;  // and not answered
  absl::Status status;
};

// The operations of a domain that are not finished, in a table of fixed size.
class ShmOperations {
 public:
  explicit ShmOperations(uint32_t capacity)
      : records_(capacity, [](uint32_t) { return ShmOperation(); }) {}

  // nullptr when all are in use.
  ShmOperation* Take() {
    SlabHandle handle;
    return records_.Allocate(&handle);
  }
  // REQUIRES: on no list.
  void Give(ShmOperation* record) {
    record->link = nullptr;
    record->user = nullptr;
    if (!record->status.ok()) record->status = absl::OkStatus();
    records_.Free(records_.HandleOf(record));
  }

  size_t room() const { return records_.capacity() - records_.size(); }
  size_t size() const { return records_.size(); }
  size_t capacity() const { return records_.capacity(); }

 private:
  Slab<ShmOperation> records_;
};

}  // namespace weft
