// A number that one thread counts with and any thread may read: a Counter (core/counters.h) of any
// type, with the operators of a number.
//
// Threads: whatever changes it, by one thread at a time (the owner); value() and the conversion by
//   any. No locked instruction: two writers at once would lose counts.
#pragma once

#include <atomic>

namespace weft {

template <class T>
class Tally {
 public:
  Tally() = default;
  Tally(const Tally&) = delete;
  Tally& operator=(const Tally&) = delete;

  T value() const { return value_.load(std::memory_order_relaxed); }
  operator T() const { return value(); }  // NOLINT: it stands for the number

  Tally& operator=(T value) {
    value_.store(value, std::memory_order_relaxed);
    return *this;
  }
  Tally& operator+=(T n) { return *this = static_cast<T>(value() + n); }
  Tally& operator-=(T n) { return *this = static_cast<T>(value() - n); }
  Tally& operator++() { return *this += 1; }
  Tally& operator--() { return *this -= 1; }

 private:
  std::atomic<T> value_{0};
};

}  // namespace weft
