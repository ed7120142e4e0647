// What sleeping adds to a call, beside what an eventfd takes to wake a sleeping thread, in the same
// run: round trips to a server that sleeps (and with a client that sleeps), less those to one that
// spins. Between two calls the client waits long enough for the server to be asleep.
//
// Threads: one, which is pinned.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureWakeup(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
