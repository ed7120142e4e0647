// Time as the rest of Weft sees it: monotonic nanoseconds from an unspecified start.
//
// Code that waits or measures takes a `const Clock&`, so that tests and the simulated network
// decide what time it is.
//
// Threads:   NowNs from any thread; a FakeClock is moved by one thread at a time.
// Lifetime:  Clock::Real() lives for ever.
#pragma once

#include <atomic>
#include <cstdint>

namespace weft {

inline constexpr uint64_t kNsPerUs = 1'000;
inline constexpr uint64_t kNsPerMs = 1'000'000;
inline constexpr uint64_t kNsPerSec = 1'000'000'000;

// A deadline that never comes (584 years from the clock's start).
inline constexpr uint64_t kNever = ~uint64_t{0};

// So many microseconds later; kNever if that is beyond all deadlines.
constexpr uint64_t LaterByUs(uint64_t now_ns, uint64_t us) {
  return us < (kNever - now_ns) / kNsPerUs ? now_ns + us * kNsPerUs : kNever;
}

class Clock {
 public:
  virtual ~Clock() = default;

  // Never smaller than an earlier result that the same thread has seen.
  virtual uint64_t NowNs() const = 0;

  // CLOCK_MONOTONIC, or what follows it to within CounterClock::kMaxOffsetNs (1 ms) and costs
  // less. No system call either way.
  static Clock& Real();

 protected:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
};

// A clock that stands still until told otherwise.
class FakeClock final : public Clock {
 public:
  // Does not start at 0, so that a forgotten time stamp is not "now". `step_ns`: it goes on by so
  // much whenever it is looked at.
  explicit FakeClock(uint64_t now_ns = kNsPerSec, uint64_t step_ns = 0)
      : now_ns_(now_ns), step_ns_(step_ns) {}

  uint64_t NowNs() const override {
    return now_ns_.fetch_add(step_ns_, std::memory_order_acq_rel) + step_ns_;
  }

  void Advance(uint64_t ns) { Set(NowNs() + ns); }

  // REQUIRES: now_ns >= NowNs(): time does not run backwards.
  void Set(uint64_t now_ns);

 private:
  mutable std::atomic<uint64_t> now_ns_;
  const uint64_t step_ns_;
};

}  // namespace weft
