// The one-sided operations of one tcp domain that are not over.
//
// Threads: the engine's. Lifetime: outlives its links.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/slab.h"
#include "transport/tcp/tcp_work.h"

namespace weft {

// A number on the wire is the place of the first record and half of its generation, so that what a
// peer says of one that is over means none.
class TcpOperations {
 public:
  // REQUIRES: capacity <= 65536.
  explicit TcpOperations(uint32_t capacity)
      : records_(capacity, [](uint32_t) { return TcpOperation(); }) {}

  // Whether `count` more records can be taken. If not, HasRoomAgain() will tell.
  bool HasRoomFor(size_t count) {
    if (room() >= count) return true;
    wanted_ = wanted_ == 0 ? count : std::min(wanted_, count);
    return false;
  }
  // An operation, and its further records. REQUIRES: HasRoomFor(1).
  TcpOperation* Take();
  TcpOperation* TakeRecord() {
    SlabHandle handle;
    return records_.Allocate(&handle);
  }
  // Gives it back, with all of its records. REQUIRES: on no list.
  void Give(TcpOperation* operation);
  // Null: there is none of this number.
  TcpOperation* Find(uint32_t number) const {
    const size_t place = number & kPlaceMask;
    TcpOperation* const found = place < by_place_.size() ? by_place_[place] : nullptr;
    return found != nullptr && found->number == number ? found : nullptr;
  }

  size_t size() const { return records_.size(); }
  // There was too little room, and is enough again: HasRoomAgain() would be true.
  bool has_news() const { return wanted_ > 0 && room() >= wanted_; }
  // There is room again; true once.
  bool HasRoomAgain() {
    if (!has_news()) return false;
    wanted_ = 0;
    return true;
  }

 private:
  static constexpr uint32_t kPlaceBits = 16;
  static constexpr uint32_t kPlaceMask = (1 << kPlaceBits) - 1;

  size_t room() const { return records_.capacity() - records_.size(); }

  Slab<TcpOperation> records_;
  std::vector<TcpOperation*> by_place_;  // first records; as many as there ever were
  size_t wanted_ = 0;  // the fewest that there was no room for since HasRoomAgain(); 0: none
};

}  // namespace weft
