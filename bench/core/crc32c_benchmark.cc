#include <cstdint>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/crc32c.h"

namespace weft {
namespace {

// The check of one payload: what each side of a bulk transfer pays.
void Crc32cOf(benchmark::State& state) {
  const std::vector<std::byte> payload(static_cast<size_t>(state.range(0)), std::byte{0x5A});
  const Counted counted(state);
  for (auto _ : state) benchmark::DoNotOptimize(Crc32c(payload));
  state.SetBytesProcessed(state.iterations() * state.range(0));
}
BENCHMARK(Crc32cOf)->Arg(4 << 10)->Arg(64 << 10)->Arg(1 << 20);

}  // namespace
}  // namespace weft
