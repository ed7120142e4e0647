// What threads get that block in calls of 64 bytes on one channel: one, four and sixteen of them,
// with an engine that the callers drive, and with one that has a thread of its own. All of them,
// and the server's engine, share two processors, and run where the kernel puts them: with sixteen
// threads most of a call is the kernel's, which puts threads to sleep and wakes them.
//
// Threads: starts its own.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureThreads(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
