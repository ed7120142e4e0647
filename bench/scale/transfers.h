// What a call of 64 bytes takes beside large transfers on the same connection: alone, beside one,
// and beside eight that are under way all the time. The transfers are one-sided reads, fetches (a
// call with bulk in its reply, which the server writes), one-sided writes, which a call behind them
// waits for, and unordered ones, which it passes.
//
// Calls are made one after the other. A transfer that has ended starts the next at once.
//
// Threads: one, which is pinned.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureTransfers(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
