// A server that is offered more than it can do: calls whose handler takes the same time each, by a
// few workers, at a third of what these can do, at just that, and at three times as much. Without a
// limit, with a fixed one, and with the adaptive one (ServerOptions::limits).
//
// Workers wait instead of computing, as for a disk: so the figures are those of the limits, and not
// of the machine's processors. Callers do not wait for each other, and for an answer no longer than
// a deadline.
//
// Threads: one, beside those of the server in this process.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

// Over the first path only: limits are the same on all.
void MeasureOverload(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
