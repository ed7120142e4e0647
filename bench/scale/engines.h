// Whether engines disturb each other: a pair is a client's and a server's engine that one thread
// polls in turn, with 64 calls of 64 bytes outstanding. One pair on one processor against two
// pairs, each on its own. Whatever engines share (a lock, a cache line, the allocator) shows in the
// ratio, most surely in that of calls per second of processor time: on a machine that has other
// work, two pairs also wait for their processors.
//
// Threads: starts its own.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureEngines(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
