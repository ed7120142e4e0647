// A slab against the two usual ways to keep calls in flight: a map from id to object, and the heap.
#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "core/random.h"
#include "core/slab.h"

namespace weft {
namespace {

// About the size of a call's state.
struct CallState {
  std::array<uint64_t, 15> words = {};
};

constexpr std::size_t kInFlight = 256;

// Random order of completion, the same for all.
std::vector<uint32_t> CompletionOrder() {
  Random random(1);
  std::vector<uint32_t> order(4096);
  for (uint32_t& entry : order) entry = static_cast<uint32_t>(random.Uniform(kInFlight));
  return order;
}

// One call: a completion comes in by handle, its object is found and freed, another call starts.
void SlabCall(benchmark::State& state) {
  Slab<CallState> slab(kInFlight);
  std::vector<uint64_t> in_flight(kInFlight);
  SlabHandle handle;
  for (uint64_t& id : in_flight) {
    slab.Allocate(&handle)->words[0] = 1;
    id = handle.packed();
  }
  const std::vector<uint32_t> order = CompletionOrder();
  std::size_t i = 0;
  const Counted counted(state);
  for (auto _ : state) {
    uint64_t& id = in_flight[order[i++ % order.size()]];
    CallState* call = slab.Get(SlabHandle::FromPacked(id));
    benchmark::DoNotOptimize(call->words[0]);
    slab.Free(SlabHandle::FromPacked(id));
    slab.Allocate(&handle)->words[0] = i;
    id = handle.packed();
  }
}
BENCHMARK(SlabCall);

void UnorderedMapCall(benchmark::State& state) {
  std::unordered_map<uint64_t, std::unique_ptr<CallState>> calls;
  std::vector<uint64_t> in_flight(kInFlight);
  uint64_t next_id = 0;
  for (uint64_t& id : in_flight) {
    id = ++next_id;
    calls.emplace(id, std::make_unique<CallState>());
  }
  const std::vector<uint32_t> order = CompletionOrder();
  std::size_t i = 0;
  const Counted counted(state);
  for (auto _ : state) {
    uint64_t& id = in_flight[order[i++ % order.size()]];
    const auto call = calls.find(id);
    benchmark::DoNotOptimize(call->second->words[0]);
    calls.erase(call);
    id = ++next_id;
    calls.emplace(id, std::make_unique<CallState>());
  }
}
BENCHMARK(UnorderedMapCall);

void SlabGet(benchmark::State& state) {
  Slab<CallState> slab(kInFlight);
  std::vector<SlabHandle> in_flight(kInFlight);
  for (SlabHandle& handle : in_flight) benchmark::DoNotOptimize(slab.Allocate(&handle));
  const std::vector<uint32_t> order = CompletionOrder();
  std::size_t i = 0;
  const Counted counted(state);
  for (auto _ : state) benchmark::DoNotOptimize(slab.Get(in_flight[order[i++ % order.size()]]));
}
BENCHMARK(SlabGet);

}  // namespace
}  // namespace weft
