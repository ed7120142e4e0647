// What a call costs a server with one engine, with two, and with four, and how many calls there are
// in a second. Each engine has one client, an engine with a thread of its own with 64 calls of 64
// bytes outstanding; the two are a pair, and run on the same processor. What is compared is the
// processor time of a call, client and server together. Nobody spins: what a thread that waits does
// costs time, and is no call's.
//
// All pairs are on one processor first. There each has its 64 calls to do whenever it runs, however
// many there are; and pairs that take turns find the processor's caches full of each other's
// memory, as any number of programs would.
//
// Then each is on a processor of its own, as far as there are any. There caches are no pair's but
// its own, and nothing of a pair's calls has to leave its processor: a line of memory that moves
// between processors is one that two engines share. So the time of a call says what they share, and
// the rate what another engine brings.
//
// Either is compared with as many servers of one engine each, which can share nothing, in turns.
// How well that can be seen here another leg says, in which the handlers of two engines all count
// in one word: what is in that ratio one word that each call writes would cost.
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
