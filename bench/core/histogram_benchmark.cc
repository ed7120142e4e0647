#include <cstdint>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "core/random.h"

namespace weft {
namespace {

// Latencies as a fast network has them: most near 2 us, some far out.
std::vector<uint64_t> Latencies() {
  Random random(1);
  std::vector<uint64_t> latencies(4096);
  for (uint64_t& ns : latencies) {
    ns = 1500 + random.Uniform(1000);
    if (random.Chance(0.01)) ns *= 1 + random.Uniform(100);
  }
  return latencies;
}

void HistogramRecord(benchmark::State& state) {
  LatencyHistogram histogram;
  const std::vector<uint64_t> latencies = Latencies();
  std::size_t i = 0;
  const Counted counted(state);
  for (auto _ : state) histogram.Record(latencies[i++ % latencies.size()]);
  benchmark::DoNotOptimize(histogram);
}
BENCHMARK(HistogramRecord);

void HistogramPercentile(benchmark::State& state) {
  LatencyHistogram histogram;
  for (const uint64_t ns : Latencies()) histogram.Record(ns);
  const Counted counted(state);
  for (auto _ : state) benchmark::DoNotOptimize(histogram.Percentile(99.9));
}
BENCHMARK(HistogramPercentile);

void HistogramMerge(benchmark::State& state) {
  LatencyHistogram histogram;
  LatencyHistogram sum;
  for (const uint64_t ns : Latencies()) histogram.Record(ns);
  const Counted counted(state);
  for (auto _ : state) {
    sum.Merge(histogram);
    benchmark::DoNotOptimize(sum);
  }
}
BENCHMARK(HistogramMerge);

// The other half of measuring a latency.
void ClockNow(benchmark::State& state) {
  const Clock& clock = Clock::Real();
  const Counted counted(state);
  for (auto _ : state) benchmark::DoNotOptimize(clock.NowNs());
}
BENCHMARK(ClockNow);

}  // namespace
}  // namespace weft
