// From rows of time stamps to the parts of a round trip.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "core/cache_line.h"
#include "core/trace.h"

namespace weft::bench {

// One call, as both sides saw it. Their time stamps are taken for one counter's: main.cc says how
// far the two processors' are apart.
// (A row is a line: the two sides fill theirs at the same time.)
struct TracedCall {
  TraceRow client;
  TraceRow server;
};
static_assert(sizeof(TraceRow) == kCacheLineBytes);

struct Segment {
  std::string name;
  double p50_ns = 0;   // of all calls
  double mean_ns = 0;  // without the slowest 5 % of calls: these add up to the mean round trip
};

struct Breakdown {
  std::vector<Segment> segments;  // in the order of time; they cover the call without a gap
  // Parts of those: the provider's send on either side, and what only some calls have.
  std::vector<Segment> inside;
  Segment whole;
  size_t calls = 0;
  size_t incomplete = 0;  // a point is missing or out of order: left out
};

Breakdown Divide(absl::Span<const TracedCall> calls, double ticks_per_ns);

// A table with a bar for each part.
std::string ToTable(const Breakdown& breakdown);

}  // namespace weft::bench
