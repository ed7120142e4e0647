// What a call costs a server with one engine, with two, and with four. Each engine has one client,
// an engine with a thread of its own with 64 calls of 64 bytes outstanding. What is compared is the
// processor time of a call, client and server together, with all of them on one processor: there
// each has its 64 calls to do whenever it runs, however many there are. Nobody spins: what a thread
// that waits does costs time, and is no call's.
//
// Two ratios say why a call costs more with more engines. Engines and clients that take turns on
// one processor find its caches full of each other's memory: that is in the ratio to one engine,
// and would be with any number of programs. As many servers of one engine each, which can share
// nothing, pay it as well: what is in the ratio to them is what the engines of one server share on
// a call's way.
//
// Rates are of other legs, in which engines and clients are spread over two processors: they can
// grow only as long as there are processors.
//
// And a server with two engines of which one's clients leave: how long it takes until it has evened
// out the others (rpc/server/rebalance.h), and what calls gain by it.
//
// Threads: starts its own.
#pragma once

#include "bench/scale/scale_options.h"
#include "bench/scale/scale_report.h"

namespace weft::bench {

void MeasureServers(const ScaleOptions& options, ScaleReport* report);

}  // namespace weft::bench
