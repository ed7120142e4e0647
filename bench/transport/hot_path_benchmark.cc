// What every batch, and every handle that a peer presents, goes through.
#include <cstdint>
#include <memory>

#include "bench/counted.h"
#include "benchmark/benchmark.h"
#include "transport/framing/credit_window.h"
#include "transport/leases/handle_code.h"
#include "transport/region_handle.h"

namespace weft {
namespace {

// A batch there and a batch back, with the credits that they return.
void CreditsForThereAndBack(benchmark::State& state) {
  CreditWindow here;
  CreditWindow there;
  here.Start(64, 64);
  there.Start(64, 64);
  const Counted counted(state);
  for (auto _ : state) {
    here.Spend();
    if (!there.Arrive() || !there.Regain(here.TakeOwed())) state.SkipWithError("no credit");
    there.Owe();
    there.Spend();
    if (!here.Arrive() || !here.Regain(there.TakeOwed())) state.SkipWithError("no credit");
    here.Owe();
    benchmark::DoNotOptimize(here);
  }
}
BENCHMARK(CreditsForThereAndBack);

void VerifyHandle(benchmark::State& state) {
  const HandleCode code;
  RegionHandle::Claim claim;
  claim.length = 4096;
  claim.rights = kMayRead;
  const RegionHandle handle = code.Mint(claim);
  const Counted counted(state);
  for (auto _ : state) {
    if (!code.Verify(handle)) state.SkipWithError("not a good handle");
  }
}
BENCHMARK(VerifyHandle);

}  // namespace
}  // namespace weft
