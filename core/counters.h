// Numbers that say what the library did, cheap enough for the hot path.
//
// A component has its counters as plain members, increments them from its own thread, and registers
// them under a name in the CounterSet that its owner (an engine, a server) passes in. There is no
// process-wide set: the owner of several sets adds their snapshots up.
//
//   struct EngineCounters { Counter frames_sent; Counter registrations; };
//   set->Register("engine.frames_sent", &counters.frames_sent);
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft {

// One number, written by one thread, read by any.
//
// Threads:  Add, Increment, Sub and Set by one thread at a time (the owner); value() by any. An
//           increment is a load and a store, without a locked instruction: two writers at once
//           would lose counts.
class Counter {
 public:
  Counter() = default;
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  void Increment() { Add(1); }
  void Add(uint64_t n) { Set(value() + n); }
  // For levels (connections open) rather than events.
  void Sub(uint64_t n) { Set(value() - n); }
  void Set(uint64_t value) { value_.store(value, std::memory_order_relaxed); }

  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Names for counters, so that they can be listed.
//
// Threads:   all methods from any thread; they lock, and have no place on the hot path.
// Lifetime:  borrows the counters: Unregister each before it is destroyed.
// Errors:    none. The same name twice is allowed: its values are added up.
class CounterSet {
 public:
  using Values = std::vector<std::pair<std::string, uint64_t>>;

  CounterSet();
  CounterSet(const CounterSet&) = delete;
  CounterSet& operator=(const CounterSet&) = delete;

  // Names are lower case, with dots between component and quantity: "engine.frames_sent".
  void Register(std::string_view name, const Counter* counter);

  // Takes the counter out. Its last value stays in the sum for its name, so that totals do not fall
  // when a component ends. Nothing to do if it is not registered.
  void Unregister(const Counter* counter);

  // All names in order, with the sum of the values registered under each. The values are read one
  // after the other: they are not from one instant. Nothing in a child of fork(), of the parent's
  // set: whoever was in it at the fork has its lock still.
  Values Snapshot() const;

 private:
  struct Entry {
    std::string name;
    const Counter* counter;
  };

  const uint32_t forks_;  // ForkCount() of its process
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<Entry> entries_;
  Values retired_;  // sums of unregistered counters, one for each name
};

}  // namespace weft
