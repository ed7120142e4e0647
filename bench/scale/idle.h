// The processor time of a server that has connections and nothing to do: heartbeats, timers, and
// whatever else wakes it. Counted by the kernel, after the time for which engines spin.
//
// Threads: one.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureIdle(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
