#include "core/histogram.h"

#include <cmath>
#include <numeric>

#include "core/check.h"

namespace weft {
namespace {

// Above the relative error of one product, one quotient and the decimal that the caller wrote (each
// at most 2^-53), and far below 1/count.
constexpr double kRoundingError = 0x1p-50;

}  // namespace

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  count_ += other.count_;
  clamped_count_ += other.clamped_count_;
  sum_ns_ += other.sum_ns_;
  min_ns_ = std::min(min_ns_, other.min_ns_);
  max_ns_ = std::max(max_ns_, other.max_ns_);
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] += other.buckets_[i];
}

uint64_t LatencyHistogram::Percentile(double percent) const {
  WEFT_DCHECK(percent >= 0 && percent <= 100);  // User: asks for a percentile
  if (count_ == 0) return 0;
  // The rank of the wanted value among the sorted ones; the smallest has rank 1. What rounding has
  // added to a whole number must not lift it to the next: 7 per cent of 100 values are 7.
  const double exact_rank = percent * static_cast<double>(count_) / 100;
  const double rank_up = std::ceil(exact_rank * (1 - kRoundingError));
  const uint64_t rank = std::clamp<uint64_t>(static_cast<uint64_t>(rank_up), 1, count_);
  if (percent <= 0) return min_ns_;
  if (rank == count_) return max_ns_;
  uint64_t seen = 0;
  std::size_t bucket = 0;
  while ((seen += buckets_[bucket]) < rank) ++bucket;
  return std::clamp(MiddleOf(bucket), min_ns_, max_ns_);
}

void LatencyHistogram::CheckInvariants() const {
  // Ours: invariants, which tests ask for
  WEFT_CHECK(std::accumulate(buckets_.begin(), buckets_.end(), uint64_t{0}) == count_);
  WEFT_CHECK(clamped_count_ <= buckets_.back());
  WEFT_CHECK(count_ == 0 || min_ns_ <= max_ns_);
}

}  // namespace weft
