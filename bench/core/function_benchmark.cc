#include <cstdint>
#include <functional>
#include <utility>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/function.h"

namespace weft {
namespace {

// Life of a completion: made from a lambda with four words, moved into its place, called,
// destroyed.
template <class Callback>
void CallbackLife(benchmark::State& state) {
  uint64_t sum = 0;
  uint64_t a = 1;
  uint64_t b = 2;
  uint64_t c = 3;
  // clang-tidy does not see that std::function frees what it allocates.
  const Counted counted(state);
  for (auto _ : state) {  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
    Callback made = [&sum, a, b, c](uint64_t n) { sum += a + b + c + n; };
    Callback stored = std::move(made);
    benchmark::DoNotOptimize(stored);
    stored(4);
  }
  benchmark::DoNotOptimize(sum);
}
BENCHMARK_TEMPLATE(CallbackLife, Function<void(uint64_t)>);
BENCHMARK_TEMPLATE(CallbackLife, std::function<void(uint64_t)>);

}  // namespace
}  // namespace weft
