// What a peer has sent before this side's Open(): it may have opened already, and its word of that
// is still on its way over the control connection.
//
// Threads: one engine's. Lifetime: a member of its connection.
// Invariants: at most the batches and the bytes that Start() allows.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "core/bytes.h"

namespace weft {

class EarlyBatches {
 public:
  using Batches = std::vector<std::vector<std::byte>>;

  // Empty; so much may be kept.
  void Start(size_t most_batches, size_t most_bytes) {
    Clear();
    most_batches_ = most_batches;
    most_bytes_ = most_bytes;
  }
  void Clear() {
    batches_.clear();
    bytes_ = 0;
  }

  // Keeps a copy. Else what is wrong with it: the peer broke the protocol.
  const char* Keep(ByteSpan batch) {
    if (batches_.size() == most_batches_) return "a batch without a credit";
    if (batch.size() > most_bytes_ - bytes_) return "too much before it was open";
    bytes_ += batch.size();
    batches_.emplace_back(batch.begin(), batch.end());
    return nullptr;
  }

  size_t count() const { return batches_.size(); }

  // All of them, in the order of their coming.
  Batches Take() {
    bytes_ = 0;
    return std::exchange(batches_, {});
  }

 private:
  Batches batches_;
  size_t bytes_ = 0;  // of these
  size_t most_batches_ = 0;
  size_t most_bytes_ = 0;
};

}  // namespace weft
