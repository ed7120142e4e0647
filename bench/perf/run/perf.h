// The run as a whole: starts the workers, lets the legs take turns, watches the machine.
//
// Raw and Weft alternate within each turn (plan.h). Before and after each turn the latency between
// the two processors is measured; turns framed by a bad one are repeated after the rounds, as long
// as there is time for it, and count only where no other did. Where all paths are emulated every
// turn counts: nothing but ratios comes out, the device in the kernel costs far more than a cache
// line, and on emulated processors, which take turns on real ones, the latency would take minutes
// to measure.
//
// Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/plan/options.h"
#include "bench/perf/plan/plan.h"
#include "bench/perf/results/results.h"

namespace weft::bench {

struct PerfReport {
  Plan plan;
  Results results;
  int client_cpu = 0;
  int server_cpu = 0;
  std::vector<double> core_to_core_ns;  // at each look; none where nobody looked
  uint64_t stolen_ms = 0;
  int turns = 0;
  int fit_turns = 0;
  std::vector<std::string> notes;  // for the person: what was skipped, and what the machine did
  bool complete = true;            // no leg failed
};

absl::StatusOr<PerfReport> RunPerf(const PerfOptions& options);

}  // namespace weft::bench
