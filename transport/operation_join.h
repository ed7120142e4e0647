// Several records that are one operation for their user, who is told once, when all have completed:
// with OK, or with the error of the first that failed.
//
// Threads: the engine's. Lifetime: the table outlives what it joins.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/slab.h"
#include "transport/operation.h"

namespace weft {

class OperationJoins {
 public:
  // REQUIRES: capacity >= 1.
  explicit OperationJoins(uint32_t capacity)
      : joins_(capacity, [this](uint32_t) { return Join(this); }) {}

  bool full() const { return joins_.size() == joins_.capacity(); }

  // What to give to `pieces` records in the place of `user`. REQUIRES: !full(), pieces >= 1.
  Operation* Take(Operation* user, uint32_t pieces) {
    SlabHandle handle;
    Join* const join = joins_.Allocate(&handle);
    join->user = user;
    join->pieces_left = pieces;
    return join;
  }

 private:
  struct Join final : public Operation {
    explicit Join(OperationJoins* of) : table(of) {}

    void OnComplete(const absl::Status& status) override {
      if (first_error.ok()) first_error = status;
      if (--pieces_left == 0) table->Finish(this);
    }

    OperationJoins* const table;
    Operation* user = nullptr;
    uint32_t pieces_left = 0;
    absl::Status first_error;
  };

  // What is told may post again: the place is free before.
  void Finish(Join* join) {
    Operation* const user = join->user;
    const absl::Status result = join->first_error;
    join->first_error = absl::OkStatus();
    joins_.Free(joins_.HandleOf(join));
    user->OnComplete(result);
  }

  Slab<Join> joins_;
};

}  // namespace weft
