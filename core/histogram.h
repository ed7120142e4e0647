// How long things took: counts in buckets of constant relative width.
//
// Log-linear, after HdrHistogram's idea: values below 128 ns have a bucket each; above, every power
// of two is cut into 64 buckets. A percentile is reported as the middle of its bucket, at most
// 1/128 = 0.78 % away from the exact value, from 0 to kMaxNs (137 s); 64 is the smallest power of
// two that keeps the promise of 1 %. Larger values are counted in the last bucket and by
// `clamped_count`.
//
// Threads:     one thread at a time. To measure in several threads, record into one histogram each,
//              and Merge them afterwards.
// Lifetime:    a plain value; it can be copied. 16.1 KiB, all inside the object: keep it off small
//              stacks.
// Errors:      none. The mean is right as long as the sum of all values stays below 584 years.
// Invariants:  count is the sum of all buckets; min <= every percentile <= max.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft {

class LatencyHistogram {
 public:
  // The largest value that is told apart, in ns: 2^37 - 1, a bit over 137 s.
  static constexpr uint64_t kMaxNs = (uint64_t{1} << 37) - 1;

  // About ten instructions, no branch that is hard to predict.
  void Record(uint64_t latency_ns) {
    clamped_count_ += latency_ns > kMaxNs;
    min_ns_ = std::min(min_ns_, latency_ns);
    max_ns_ = std::max(max_ns_, latency_ns);
    sum_ns_ += latency_ns;
    ++count_;
    ++buckets_[BucketOf(std::min(latency_ns, kMaxNs))];
  }

  // Adds everything that `other` has recorded.
  void Merge(const LatencyHistogram& other);

  // A value such that `percent` per cent of all recorded ones are not larger (nearest rank). 0 and
  // 100 give minimum and maximum, both exact. 0 when nothing was recorded.
  // REQUIRES: 0 <= percent <= 100.
  uint64_t Percentile(double percent) const;

  uint64_t count() const { return count_; }
  uint64_t clamped_count() const { return clamped_count_; }
  // Exact, even beyond kMaxNs; 0 when nothing was recorded.
  uint64_t min() const { return count_ == 0 ? 0 : min_ns_; }
  uint64_t max() const { return max_ns_; }
  double mean() const {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_ns_) / static_cast<double>(count_);
  }

  void Reset() { *this = LatencyHistogram(); }

  // Aborts unless the invariants in the file comment hold.
  void CheckInvariants() const;

 private:
  static constexpr int kPrecisionBits = 6;
  static constexpr uint64_t kLinearNs = uint64_t{2} << kPrecisionBits;  // 128: one bucket each

  static constexpr std::size_t BucketOf(uint64_t ns) {
    // The leading 7 bits select the bucket, the number of the others the group of 64.
    const int shift = static_cast<int>(std::bit_width(ns | (kLinearNs - 1))) - (kPrecisionBits + 1);
    return (static_cast<std::size_t>(shift) << kPrecisionBits) + (ns >> shift);
  }
  static constexpr uint64_t MiddleOf(std::size_t bucket) {
    if (bucket < kLinearNs) return bucket;
    const int shift = static_cast<int>(bucket >> kPrecisionBits) - 1;
    const uint64_t leading = bucket - (static_cast<uint64_t>(shift) << kPrecisionBits);
    return (leading << shift) + ((uint64_t{1} << shift) - 1) / 2;
  }

  uint64_t count_ = 0;
  uint64_t clamped_count_ = 0;
  uint64_t sum_ns_ = 0;
  uint64_t min_ns_ = ~uint64_t{0};
  uint64_t max_ns_ = 0;
  std::array<uint64_t, 2048> buckets_ = {};
  static_assert(2048 == ((37 - kPrecisionBits + 1) << kPrecisionBits));
};

}  // namespace weft
