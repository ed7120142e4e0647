// The run as a whole: starts the workers, lets the legs take turns, watches the machine.
//
// Raw and Weft alternate within each round, so that whatever happens to the machine happens to
// both. Before and after each round the latency between the two processors is measured; a round
// framed by a bad one is repeated, as often as there are rounds, and does not count if another
// does. Where all paths are emulated every round counts: nothing but ratios comes out, the device
// in the kernel costs far more than a cache line, and on emulated processors, which take turns on
// real ones, the latency would take minutes to measure.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/options.h"
#include "bench/perf/results.h"

namespace weft::bench {

struct PerfReport {
  Results results;
  std::vector<std::string> notes;  // for the person: what was skipped, and what the machine did
  bool complete = true;            // no leg failed
};

absl::StatusOr<PerfReport> RunPerf(const PerfOptions& options);

}  // namespace weft::bench
