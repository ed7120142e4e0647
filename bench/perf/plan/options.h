// perf's command line.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"

namespace weft::bench {

struct PerfOptions {
  std::vector<std::string> paths = {"shm", "tcp"};
  std::vector<Cell> cells;  // also those that make no sense, which are then left out with a word
  bool with_peers = false;  // also the kinds of ends that are peers (end_kinds.h)
  bool quick = false;
  int rounds = 5;              // each runs every leg once
  double seconds_per_leg = 0;  // of one round; 0: what fits into the time for all (plan.h)
  std::string json_file;       // empty: none
  bool help = false;
};

inline constexpr char kPerfUsage[] =
    "usage: weft_perf [--quick] [--paths LIST] [--only FILTER] [--peers] [--repeat N]\n"
    "                 [--seconds S] [--json FILE]\n"
    "\n"
    "Measures raw libfabric and Weft side by side, in turns, each as two processes pinned to two\n"
    "processors: {unary, coroutine, stream, messages, bulk, bulk_checked, read, write} x {0, 64,\n"
    "300, 1Ki, 4Ki, 16Ki, 64Ki, 1Mi} bytes x {1, 8, 64} outstanding. docs/benchmarks.md says what "
    "each of these is.\n"
    "\n"
    "  --quick        the rows of the summary only, in 20 seconds (default: all, in 10 minutes)\n"
    "  --paths LIST   which paths, separated by commas (default: shm,tcp): shm, tcp, ofi_tcp,\n"
    "                 verbs (RDMA by hardware), rxe, siw (in software: only ratios; ./dev lab "
    "perf)\n"
    "  --only FILTER  which cells: PATTERN[:BYTES[:OUTSTANDING]], several separated by commas; * "
    "or\n"
    "                 nothing stands for all (--only unary:64:1,bulk:*:8)\n"
    "  --peers        also what others use instead, where it is installed\n"
    "  --repeat N     rounds; the results are medians over them (default: 5, with --quick 3)\n"
    "  --seconds S    how long each leg runs in a round (default: what fits into the time)\n"
    "  --json FILE    write everything that was measured, and on what machine\n"
    "\n"
    "./dev perf also knows --report DIR (a page of plots), and ends with plots in the terminal.\n";

// `arguments` without the program's name. INVALID_ARGUMENT names the one that is wrong.
absl::StatusOr<PerfOptions> ParsePerfOptions(const std::vector<std::string>& arguments);

}  // namespace weft::bench
