// What a run measures, in which order, and how long each part takes.
//
// A turn is one cell on one path: the legs of all kinds that have it, right after one another, so
// that whatever happens to the machine happens to all of them. A round is every turn once.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/perf_path.h"
#include "bench/perf/plan/end_kinds.h"
#include "bench/perf/plan/options.h"

namespace weft::bench {

struct Turn {
  size_t path = 0;  // index of the path
  Cell cell;
  std::vector<std::string> kinds;  // in the order in which they run
};

// Something of the matrix that is not measured.
struct LeftOut {
  std::string path;  // "": on every path
  Cell cell;
  std::string kind;  // "": nobody
  std::string reason;
};

struct Plan {
  std::vector<Turn> turns;
  std::vector<LeftOut> left_out;
  double seconds_per_leg = 0;

  size_t legs() const;  // of one round
  // All rounds, without repetitions.
  double EstimatedSeconds(int rounds) const;
};

// By cell first, then by path.
Plan MakePlan(const PerfOptions& options, const std::vector<PerfPath>& paths,
              const std::vector<EndKind>& kinds);

// What looking at the machine costs for each turn (CoreToCoreNs()), and beginning and ending a leg.
inline constexpr double kSecondsPerLook = 0.02;
inline constexpr double kSecondsPerStart = 0.005;

}  // namespace weft::bench
