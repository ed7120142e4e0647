// What many connections cost each call, and what each costs in memory.
//
// Two servers, each an engine in a process of its own: one has one connection, the other N. Calls
// go round all of them, so every call meets a connection that has been quiet for N calls: the worst
// case of caches. The two take turns.
//
// Threads: one, which is pinned.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureConnections(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
