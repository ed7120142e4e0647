// A run as one JSON document that explains itself: docs/benchmarks.md has its members.
//
// Threads: pure functions.
#pragma once

#include <string>

#include "bench/machine/description.h"
#include "bench/perf/plan/options.h"
#include "bench/perf/run/perf.h"

namespace weft::bench {

// What a reader has to know to read it. Changes whenever a member changes its meaning or goes.
inline constexpr uint64_t kDocumentVersion = 1;

struct DocumentFacts {
  MachineDescription machine;
  std::string libfabric;  // "1.17"
  std::string taken_at;   // UTC, ISO 8601
};

std::string ToDocument(const PerfOptions& options, const PerfReport& report,
                       const DocumentFacts& facts);

}  // namespace weft::bench
