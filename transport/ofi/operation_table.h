// The one-sided operations of a domain that are not finished, in a table of fixed size.
//
// An operation is one record, however many provider calls it takes: a provider with a largest
// transfer gets it in parts, which share one context {slot, generation}. The record is done when
// every part is posted and every posted part has completed.
//
// Threads: the engine's.
// Invariants: bytes_posted <= bytes; parts_in_flight counts the completions still to come.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "core/slab.h"
#include "transport/ofi/work.h"
#include "transport/operation.h"
#include "transport/transport.h"

namespace weft {

struct OperationRecord : Work {
  OperationRecord() : Work(WorkKind::kOperation) {}

  bool AllPosted() const { return bytes_posted == bytes; }

  Operation* user = nullptr;
  std::byte* local = nullptr;
  void* descriptor = nullptr;
  uint64_t remote_offset = 0;
  uint64_t remote_key = 0;
  uint64_t bytes = 0;
  uint64_t bytes_posted = 0;
  uint32_t parts_in_flight = 0;
  TransferKind operation = TransferKind::kRead;
  bool finished = false;  // only the user has still to hear of it
  absl::Status status;    // the first part that failed decides
};

class OperationTable {
 public:
  // REQUIRES: capacity < 2^30.
  explicit OperationTable(uint32_t capacity)
      : records_(capacity, [](uint32_t) { return OperationRecord(); }) {}

  // nullptr when all are in use.
  OperationRecord* Take() {
    SlabHandle handle;
    return records_.Allocate(&handle);
  }
  // REQUIRES: on no list.
  void Give(OperationRecord* record) {
    record->link = nullptr;
    record->user = nullptr;
    record->finished = false;
    record->status = absl::OkStatus();
    records_.Free(records_.HandleOf(record));
  }

  WorkId IdOf(const OperationRecord* record) const {
    const SlabHandle handle = records_.HandleOf(record);
    return WorkId(WorkKind::kOperation, handle.slot, handle.generation);
  }
  // nullptr for ids of finished operations.
  OperationRecord* Find(WorkId id) { return records_.Get({id.index(), id.generation()}); }

  size_t size() const { return records_.size(); }
  size_t capacity() const { return records_.capacity(); }

 private:
  Slab<OperationRecord> records_;
};

}  // namespace weft
