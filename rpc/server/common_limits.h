// The limits of a server with several engines that are one number for all of them: how many calls
// run of one client, and of one method (server_limits.h).
//
// The places for the calls of one limit lie in a CommonPlaces. An engine takes some of them, uses
// these without asking anybody, and gives back what it does not use. The more there are, the more
// it takes at a time: of 4 engines and a limit of 640 each takes and gives 10, and so touches what
// all of them share with one call of ten at most. Where there are few for each engine it takes one
// and gives it back with each call that this limit is for: two atomic operations.
//
// Threads: any.
// Lifetime: of the server's Admissions together, which refer to it; goes after them.
// Errors: none.
// Invariants: no more places are with the engines than the limit has. What one engine does not use
//   is less than an eighth of its equal part: so who finds no place knows that more than seven
//   eighths are in use, and all of them where there are fewer than 32 for each engine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "core/cache_line.h"
#include "rpc/server/server_limits.h"

namespace weft {

class CommonPlaces {
 public:
  CommonPlaces(uint32_t most, size_t engines)
      : most_(most),
        at_a_time_(std::max<uint32_t>(1, static_cast<uint32_t>(most / (kTakes * engines)))),
        free_(most) {}

  uint32_t most() const { return most_; }
  // What no engine uses, none has: who finds no place knows that all are in use.
  bool exact() const { return at_a_time_ == 1; }

  // As many as an engine takes at a time, or as there are; 0: none is free.
  uint32_t Take() {
    uint32_t free = free_.load(std::memory_order_relaxed);
    while (free > 0) {
      const uint32_t taken = std::min(free, at_a_time_);
      if (free_.compare_exchange_weak(free, free - taken, std::memory_order_relaxed)) return taken;
    }
    return 0;
  }
  // Of an engine that does not use so many of those that it has: takes back what it has too many,
  // and returns how many these were. At most 2 * at_a_time - 2 stay unused: of one, none.
  uint32_t TakeBack(uint32_t unused) {
    if (unused < 2 * at_a_time_ - 1) return 0;
    TakeBackAll(at_a_time_);
    return at_a_time_;
  }
  void TakeBackAll(uint32_t unused) { free_.fetch_add(unused, std::memory_order_relaxed); }

 private:
  // So often an engine takes places until it has its equal part. More: fewer lie unused; fewer:
  // calls touch the common number less often.
  static constexpr size_t kTakes = 16;

  // Constant after construction.
  const uint32_t most_;
  const uint32_t at_a_time_;

  alignas(kCacheLineBytes) std::atomic<uint32_t> free_;
};

class CommonLimits {
 public:
  CommonLimits(const ServerLimits& limits, size_t engines)
      : per_client_(limits.per_client), engines_(engines) {
    for (const MethodLimit& one : limits.per_method) methods_.emplace_back(one.most, engines);
  }

  // Of ServerLimits::per_method with this number.
  CommonPlaces* OfMethod(size_t number) { return &methods_[number]; }

  // Of the client that has proved to be this one, as long as an engine keeps them. Takes a lock:
  // connections ask, when they open.
  std::shared_ptr<CommonPlaces> OfClient(const std::string& client) {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::weak_ptr<CommonPlaces>& known = clients_[client];
    if (std::shared_ptr<CommonPlaces> places = known.lock()) return places;
    std::shared_ptr<CommonPlaces> places(new CommonPlaces(per_client_, engines_),
                                         [this, client](CommonPlaces* gone) {
                                           Forget(client);
                                           delete gone;
                                         });
    known = places;
    return places;
  }
  size_t clients() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return clients_.size();
  }

 private:
  // Unless it has come again meanwhile, at another engine.
  void Forget(const std::string& client) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto known = clients_.find(client);
    if (known != clients_.end() && known->second.expired()) clients_.erase(known);
  }

  // Constant after construction.
  const uint32_t per_client_;
  const size_t engines_;

  std::deque<CommonPlaces> methods_;  // as ServerLimits::per_method

  std::mutex mutex_;
  // Guarded by mutex_: of clients that have a connection.
  std::unordered_map<std::string, std::weak_ptr<CommonPlaces>> clients_;
};

}  // namespace weft
