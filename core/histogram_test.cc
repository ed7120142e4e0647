#include "core/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "core/test_seed.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// The value of nearest rank, in integers: `percent` is in hundredths of a per cent.
uint64_t ExactPercentile(const std::vector<uint64_t>& sorted, std::size_t percent_hundredths) {
  const std::size_t rank = (percent_hundredths * sorted.size() + 9'999) / 10'000;
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

void ExpectWithinOnePercent(uint64_t value, uint64_t exact) {
  EXPECT_LE(std::abs(static_cast<double>(value) - static_cast<double>(exact)),
            0.01 * static_cast<double>(exact))
      << value << " instead of " << exact;
}

TEST(LatencyHistogram, IsAllZeroWhenEmpty) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.min(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  EXPECT_EQ(histogram.mean(), 0.0);
  EXPECT_EQ(histogram.Percentile(99), 0u);
}

TEST(LatencyHistogram, CountMinMaxAndMeanAreExact) {
  LatencyHistogram histogram;
  for (const uint64_t ns : {1'000'003, 17, 500'000}) histogram.Record(ns);
  EXPECT_EQ(histogram.count(), 3u);
  EXPECT_EQ(histogram.min(), 17u);
  EXPECT_EQ(histogram.max(), 1'000'003u);
  EXPECT_DOUBLE_EQ(histogram.mean(), 1'500'020.0 / 3);
  EXPECT_EQ(histogram.Percentile(0), 17u);
  EXPECT_EQ(histogram.Percentile(100), 1'000'003u);
  histogram.CheckInvariants();
}

// 7 / 100.0 * 100 is a little more than 7, and a rank rounded up from it was that of the next
// value.
TEST(LatencyHistogram, SmallValuesAreExact) {
  LatencyHistogram histogram;
  for (uint64_t ns = 0; ns < 100; ++ns) histogram.Record(ns);
  for (int percent = 1; percent <= 100; ++percent) {
    EXPECT_EQ(histogram.Percentile(percent), static_cast<uint64_t>(percent - 1));
  }
}

// The values at both ends of every bucket, and one in between: surrounded by a smaller and a larger
// one, so that min and max don't help.
TEST(LatencyHistogram, NoValueIsOffByMoreThanOnePercent) {
  const auto measure = [](uint64_t ns) {
    LatencyHistogram histogram;
    histogram.Record(0);
    histogram.Record(ns);
    histogram.Record(LatencyHistogram::kMaxNs);
    return histogram.Percentile(50);
  };
  for (uint64_t ns = 50; ns <= 100'000'000'000; ns += 1 + ns / 512)
    ExpectWithinOnePercent(measure(ns), ns);
  for (int bit = 6; bit < 37; ++bit) {
    const uint64_t power = uint64_t{1} << bit;
    for (const uint64_t ns : {power - 1, power, power + 1}) ExpectWithinOnePercent(measure(ns), ns);
  }
}

TEST(LatencyHistogram, PercentilesAreThoseOfTheSortedValuesWithinOnePercent) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  for (int round = 0; round < 20; ++round) {
    LatencyHistogram histogram;
    std::vector<uint64_t> values;
    const uint64_t count = 1 + random.Uniform(5000);
    for (uint64_t i = 0; i < count; ++i) {
      // Uniform on a logarithmic scale from 50 ns to 100 s.
      values.push_back(static_cast<uint64_t>(50 * std::pow(2e9, random.UniformDouble())));
      histogram.Record(values.back());
    }
    std::sort(values.begin(), values.end());
    for (std::size_t hundredths = 0; hundredths <= 10'000; ++hundredths) {
      ExpectWithinOnePercent(histogram.Percentile(static_cast<double>(hundredths) / 100),
                             ExactPercentile(values, hundredths));
    }
    histogram.CheckInvariants();
  }
}

TEST(LatencyHistogram, TooLargeValuesAreClampedAndCounted) {
  LatencyHistogram histogram;
  histogram.Record(100);
  histogram.Record(LatencyHistogram::kMaxNs);
  EXPECT_EQ(histogram.clamped_count(), 0u);
  histogram.Record(LatencyHistogram::kMaxNs + 1);
  histogram.Record(~uint64_t{0});
  EXPECT_EQ(histogram.clamped_count(), 2u);
  EXPECT_EQ(histogram.count(), 4u);
  EXPECT_EQ(histogram.max(), ~uint64_t{0});
  ExpectWithinOnePercent(histogram.Percentile(75), LatencyHistogram::kMaxNs);
  histogram.CheckInvariants();
}

TEST(LatencyHistogram, MergedHistogramIsThatOfAllValues) {
  const uint64_t seed = TestSeed();
  SCOPED_TRACE(SeedTrace(seed));
  Random random(seed);
  LatencyHistogram all;
  LatencyHistogram parts[3];
  for (int i = 0; i < 3000; ++i) {
    const uint64_t ns = random.Next64() >> (20 + random.Uniform(40));
    all.Record(ns);
    parts[random.Uniform(2)].Record(ns);  // the third stays empty
  }
  LatencyHistogram merged;
  for (const LatencyHistogram& part : parts) merged.Merge(part);
  merged.CheckInvariants();
  EXPECT_EQ(merged.count(), all.count());
  EXPECT_EQ(merged.clamped_count(), all.clamped_count());
  EXPECT_EQ(merged.min(), all.min());
  EXPECT_EQ(merged.max(), all.max());
  EXPECT_EQ(merged.mean(), all.mean());
  for (int percent = 0; percent <= 100; ++percent) {
    EXPECT_EQ(merged.Percentile(percent), all.Percentile(percent));
  }
}

TEST(LatencyHistogram, PercentilesNeverFall) {
  LatencyHistogram histogram;
  Random random(7);
  for (int i = 0; i < 1000; ++i) histogram.Record(random.Next64() >> random.Uniform(60));
  uint64_t previous = 0;
  for (double percent = 0; percent <= 100; percent += 0.01) {
    const uint64_t value = histogram.Percentile(std::min(percent, 100.0));
    ASSERT_GE(value, previous);
    previous = value;
  }
}

TEST(LatencyHistogram, ResetForgetsEverything) {
  LatencyHistogram histogram;
  histogram.Record(1000);
  histogram.Reset();
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.max(), 0u);
  histogram.Record(5);
  EXPECT_EQ(histogram.Percentile(50), 5u);
}

TEST(LatencyHistogram, TakesTheMemoryThatItSays) {
  static_assert(sizeof(LatencyHistogram) == 2048 * 8 + 5 * 8);
}

}  // namespace
}  // namespace weft
