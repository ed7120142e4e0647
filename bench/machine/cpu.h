// Which processors a measurement runs on, and whether they are fit for one right now.
//
// In a virtual machine the hypervisor moves virtual processors between physical ones. When two of
// them end up far from each other, everything that passes through shared memory takes two to three
// times as long. A measurement is therefore framed by CoreToCoreNs(): the latency of one cache line
// is the first thing to change.
//
// Threads: any.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace weft::bench {

// Above this a pair of cores is not as close as cores of one socket usually are (45..60 ns), and
// what is measured there says little. From repeated measurements on virtual machines.
inline constexpr double kFitCoreToCoreNs = 80;

// Processors that this process may run on, ascending.
std::vector<int> AllowedCpus();

// The calling thread runs on `cpu` only, from now on.
absl::Status PinThisThread(int cpu);
// On `cpus` only. REQUIRES: one at least.
absl::Status LimitThisThread(const std::vector<int>& cpus);

// The time that a cache line takes from `first` to `second`, one way, in ns: the median of several
// short runs. Takes about 20 ms, on a busy machine some times that. 0 when both are the same, or a
// thread cannot be pinned.
double CoreToCoreNs(int first, int second);

// Processor time since boot that the hypervisor gave to others, in clock ticks of all processors.
uint64_t StolenTicks();

}  // namespace weft::bench
