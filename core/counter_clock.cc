#include "core/counter_clock.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/check.h"

namespace weft {
namespace {

// The rate's first measurement: two samples are right to 50 ns or so, which is 250 parts per
// million of this. The first segment is so short that this makes 1 us.
constexpr uint64_t kFirstSpanNs = 200'000;
constexpr uint64_t kFirstLengthNs = 4 * kNsPerMs;
constexpr uint64_t kGrowth = 4;  // of the length, from segment to segment
constexpr uint64_t kLastLengthNs = kNsPerSec;

// The share of a segment after which the next one is laid out. Before the end, so that a busy
// process never has to stop for it; late, so that the next one is right.
constexpr uint64_t kLimitNumerator = 7, kLimitDenominator = 8;

uint64_t MonotonicNs() {
  timespec now;
  // System: has this clock, and it is there for everybody
  WEFT_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSec + static_cast<uint64_t>(now.tv_nsec);
}

std::string KernelsClockSource() {
  std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  std::string name;
  file >> name;
  return name;
}

#if defined(__x86_64__)
// "Invariant": it counts at one rate in all states of the processor.
bool IsTrusted() {
  constexpr unsigned kPowerLeaf = 0x80000007, kInvariantBit = 1u << 8;
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(kPowerLeaf, &eax, &ebx, &ecx, &edx) == 0) return false;
  return (edx & kInvariantBit) != 0 && KernelsClockSource() == "tsc";
}
#elif defined(__aarch64__)
bool IsTrusted() { return KernelsClockSource() == "arch_sys_counter"; }
#else
bool IsTrusted() { return false; }
#endif

}  // namespace

std::unique_ptr<CounterClock> CounterClock::Create() {
  if (!IsTrusted()) return nullptr;
  return std::unique_ptr<CounterClock>(new CounterClock);
}

CounterClock::CounterClock() : last_(TakeSample()), length_ns_(kFirstLengthNs) {
  Sample sample = TakeSample();
  while (sample.ns - last_.ns < kFirstSpanNs) sample = TakeSample();
  MeasureRate(sample);
  Write(0, sample.counter, sample.ns, rate_);
}

// The best of a few: one that was interrupted says little.
CounterClock::Sample CounterClock::TakeSample() {
  Sample best = {};
  uint64_t least = ~uint64_t{0};
  for (int i = 0; i < 4; ++i) {
    const uint64_t before = ReadCounter();
    const uint64_t ns = MonotonicNs();
    const uint64_t took = ReadCounter() - before;
    if (took >= least) continue;
    least = took;
    best = {before + took / 2, ns};
  }
  return best;
}

// A rate that changes by more than a hundredth is none: the machine was asleep, or moved.
void CounterClock::MeasureRate(const Sample& sample) {
  const auto ns = static_cast<unsigned __int128>(sample.ns - last_.ns) << kFractionBits;
  const uint64_t counts = std::max<uint64_t>(sample.counter - last_.counter, 1);
  const auto rate = static_cast<uint64_t>(ns / counts);
  const uint64_t most_off = rate_ / 100;
  if (rate_ == 0 || (rate > rate_ - most_off && rate < rate_ + most_off)) rate_ = rate;
  last_ = sample;
}

void CounterClock::Write(uint64_t number, uint64_t start, uint64_t ns, uint64_t rate) {
  const auto length =
      static_cast<uint64_t>((static_cast<unsigned __int128>(length_ns_) << kFractionBits) / rate_);
  Segment& segment = segments_[number % kSegments];
  segment.start.store(start, std::memory_order_release);
  segment.ns.store(ns, std::memory_order_release);
  segment.rate.store(rate, std::memory_order_release);
  segment.length.store(length, std::memory_order_release);
  segment.limit.store(length / kLimitDenominator * kLimitNumerator, std::memory_order_release);
  laid_out_.store(number, std::memory_order_release);
  length_ns_ = std::min(length_ns_ * kGrowth, kLastLengthNs);
}

uint64_t CounterClock::NowSlowly() {
  for (;;) {
    uint64_t number = number_.load(std::memory_order_acquire);
    const Segment& segment = segments_[number % kSegments];
    const uint64_t since = ReadCounter() - segment.start.load(std::memory_order_acquire);
    const uint64_t length = segment.length.load(std::memory_order_acquire);
    const uint64_t now_ns = segment.At(since);
    if (number_.load(std::memory_order_relaxed) != number) continue;
    if (since < length) {
      if (since >= segment.limit.load(std::memory_order_relaxed)) LayOutNext(number);
      return now_ns;
    }
    if (laid_out_.load(std::memory_order_acquire) > number) {
      number_.compare_exchange_strong(number, number + 1, std::memory_order_acq_rel);
    } else {
      StartAnew(number);
    }
  }
}

// The next segment begins at this one's end. Whoever comes meanwhile goes on with this one.
void CounterClock::LayOutNext(uint64_t number) {
  if (busy_.exchange(true, std::memory_order_acquire)) return;
  if (laid_out_.load(std::memory_order_relaxed) == number) {
    Segment& segment = segments_[number % kSegments];
    const uint64_t length = segment.length.load(std::memory_order_relaxed);
    const uint64_t end = segment.start.load(std::memory_order_relaxed) + length;
    const uint64_t end_ns = segment.At(length);
    const Sample sample = TakeSample();
    MeasureRate(sample);
    // Where the kernel's clock will be at the end, and by how much this one will be off.
    const auto ahead = static_cast<__int128>(static_cast<int64_t>(end - sample.counter));
    const auto kernel_ns =
        static_cast<int64_t>(sample.ns) + static_cast<int64_t>((ahead * rate_) >> kFractionBits);
    const int64_t off_ns = kernel_ns - static_cast<int64_t>(end_ns);
    // Made good within the next segment; never at more than twice or less than half the rate.
    const auto share = static_cast<int64_t>(static_cast<__int128>(rate_) * off_ns /
                                            static_cast<int64_t>(length_ns_));
    const auto most = static_cast<int64_t>(rate_ / 2);
    const auto rate = static_cast<int64_t>(rate_) + std::clamp(share, -most, 2 * most);
    Write(number + 1, end, end_ns, static_cast<uint64_t>(rate));
    segment.limit.store(length, std::memory_order_relaxed);
  }
  busy_.store(false, std::memory_order_release);
}

// Nobody has asked for the time for so long that the segment has ended, or the counter has jumped.
// Nobody was told a time beyond the segment's end, so the kernel's is good, if it is not less.
void CounterClock::StartAnew(uint64_t number) {
  if (busy_.exchange(true, std::memory_order_acquire)) {
    sched_yield();
    return;
  }
  if (laid_out_.load(std::memory_order_relaxed) == number) {
    const Segment& segment = segments_[number % kSegments];
    const uint64_t end_ns = segment.At(segment.length.load(std::memory_order_relaxed));
    const Sample sample = TakeSample();
    MeasureRate(sample);
    Write(number + 1, sample.counter, std::max(end_ns, sample.ns), rate_);
    number_.store(number + 1, std::memory_order_release);
  }
  busy_.store(false, std::memory_order_release);
}

}  // namespace weft
