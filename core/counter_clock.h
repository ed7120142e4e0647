// CLOCK_MONOTONIC by the processor's own time stamp counter: fewer instructions, and no fence
// before the counter is read. (18 ns instead of 22 in a virtual machine, where reading the counter
// is most of it.)
//
// The counter's rate is measured against CLOCK_MONOTONIC. Time is a chain of straight segments,
// each a second long (the first ones shorter, while the rate is not known well): near the end of
// one the next is laid out, which begins where this one ends and leads to where CLOCK_MONOTONIC is
// expected then. So all threads see one function of the counter, which never steps back and never
// leaves CLOCK_MONOTONIC by more than kMaxOffsetNs: the kernel changes the rate of its clock by
// 500 parts per million at most (NTP), and a segment follows the rate of the last. Usually the two
// are within a microsecond.
//
// Used where the counter is known to be good: x86-64 with an invariant counter, and AArch64, if the
// kernel itself takes its time from it (which also says that the processors' counters agree).
//
// Threads:   any. Reading takes no lock; once a second a reader lays out the next segment. What two
//            threads read compares to within a microsecond or two: the counter is read without
//            waiting for what comes before it in the program, a load that takes long, say.
// Lifetime:  lives for ever, as Clock::Real() does.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "core/cache_line.h"
#include "core/clock.h"

namespace weft {

class CounterClock final : public Clock {
 public:
  // Between this clock and CLOCK_MONOTONIC: two segments' length at 500 parts per million.
  static constexpr uint64_t kMaxOffsetNs = kNsPerMs;

  // Measures the counter for 0.2 ms. Null: this machine's is not to be trusted.
  static std::unique_ptr<CounterClock> Create();

  uint64_t NowNs() const override {
    const uint64_t number = number_.load(std::memory_order_acquire);
    const Segment& segment = segments_[number % kSegments];
    const uint64_t since = ReadCounter() - segment.start.load(std::memory_order_acquire);
    const uint64_t limit = segment.limit.load(std::memory_order_acquire);
    const uint64_t now_ns = segment.At(since);
    if (since < limit && number_.load(std::memory_order_relaxed) == number) [[likely]]
      return now_ns;
    return const_cast<CounterClock*>(this)->NowSlowly();
  }

  static uint64_t ReadCounter() {
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
    uint64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return 0;
#endif
  }

 private:
  // A reader that was interrupted may still look at the last segment while the next one is written.
  static constexpr uint64_t kSegments = 4;
  static constexpr int kFractionBits = 40;  // of a rate: 10^-12 ns

  // Two numbers of the kernel and the processor that belong together.
  struct Sample {
    uint64_t counter;
    uint64_t ns;
  };

  // Good for counters in [start, start + length). Constant while it is `number_`'s, but for limit.
  // A reader may come upon parts of a later one; then it finds another number_ behind them, for
  // they are stored with release and read with acquire.
  struct Segment {
    std::atomic<uint64_t> start{0};
    std::atomic<uint64_t> ns{0};      // at start
    std::atomic<uint64_t> rate{0};    // ns for each count, times 2^kFractionBits
    std::atomic<uint64_t> length{0};  // counts
    std::atomic<uint64_t> limit{0};   // since start: somebody has to do something then

    uint64_t At(uint64_t since) const {
      return ns.load(std::memory_order_acquire) +
             static_cast<uint64_t>(static_cast<unsigned __int128>(since) *
                                       rate.load(std::memory_order_acquire) >>
                                   kFractionBits);
    }
  };

  CounterClock();

  static Sample TakeSample();
  uint64_t NowSlowly();
  void LayOutNext(uint64_t number);
  void StartAnew(uint64_t number);
  void Write(uint64_t number, uint64_t start, uint64_t ns, uint64_t rate);
  void MeasureRate(const Sample& sample);

  // Readers'.
  alignas(kCacheLineBytes) std::atomic<uint64_t> number_{0};  // of the segment in force
  std::atomic<uint64_t> laid_out_{0};                         // of the newest one, >= number_
  Segment segments_[kSegments];

  // Theirs who hold busy_.
  std::atomic<bool> busy_{false};
  Sample last_;             // that the rate was measured with
  uint64_t rate_ = 0;       // as measured
  uint64_t length_ns_ = 0;  // of the next segment
};

}  // namespace weft
