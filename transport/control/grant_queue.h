// Grants that have arrived on a control connection and wait for the turn in which users may be
// told.
//
// An honest peer has at most kMaxLeases questions, renewals and returns under way as a lease
// holder, and as many answers, answers to renewals, and ends as a lease owner. More than kCapacity
// waiting here is a flood. One turn takes at most kPerTurn of them, so that a peer that fills its
// control connection with questions takes no more of this engine's time than a peer that sends
// calls.
//
// Threads: one engine's. Lifetime: a member of its control connection.
// Errors: a full queue is false.
// Invariants: size() <= kCapacity; nothing is allocated before the first grant.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/bytes.h"
#include "transport/leases/grant_message.h"

namespace weft {

class GrantQueue {
 public:
  static constexpr size_t kCapacity = size_t{6} * kMaxLeases;
  // Of one turn. A question costs about 2 us, and on RDMA a registration of about 50.
  static constexpr int kPerTurn = 16;

  // REQUIRES: at most kMaxGrantBytes.
  [[nodiscard]] bool Push(ByteSpan grant) {
    if (size() == kCapacity) return false;
    if (taken_ >= kCapacity) DropTaken();
    Entry& entry = entries_.emplace_back();
    entry.size = static_cast<uint8_t>(grant.size());
    std::copy(grant.begin(), grant.end(), entry.bytes.begin());
    return true;
  }

  // The oldest one; valid until the next call. REQUIRES: !empty().
  ByteSpan Pop() {
    last_ = entries_[taken_++];
    if (empty()) DropTaken();
    return ByteSpan(last_.bytes).first(last_.size);
  }

  size_t size() const { return entries_.size() - taken_; }
  bool empty() const { return size() == 0; }

 private:
  struct Entry {
    uint8_t size = 0;
    std::array<std::byte, kMaxGrantBytes> bytes;
  };
  static_assert(kMaxGrantBytes <= 255);

  void DropTaken() {
    entries_.erase(entries_.begin(), entries_.begin() + static_cast<ptrdiff_t>(taken_));
    taken_ = 0;
  }

  std::vector<Entry> entries_;  // the first taken_ of them are gone; at most 2 * kCapacity
  size_t taken_ = 0;
  Entry last_;
};

}  // namespace weft
