// perf's command line.
//
// Threads: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft::bench {

struct PerfOptions {
  std::vector<std::string> paths = {"shm", "tcp"};
  int rounds = 7;              // each runs every leg once
  double seconds_per_leg = 0;  // of one round; never 0 after parsing
  std::string json_file;       // empty: none
  bool help = false;
};

// Legs of one path: raw's and Weft's.
inline constexpr int kLegsPerPath = 15;

// Without --quick or --seconds. Legs of this length or more are a patient run.
inline constexpr double kPatientSeconds = 1;

inline constexpr char kPerfUsage[] =
    "usage: weft_perf [--quick] [--paths LIST] [--repeat N] [--seconds S] [--json FILE]\n"
    "\n"
    "Measures raw libfabric and Weft side by side, alternating, each as two processes pinned to\n"
    "two processors: 64-byte round trips, 64-byte requests with 64 outstanding, one-sided reads "
    "of\n"
    "64 bytes and writes of 1 MiB, calls with 1 MiB of bulk.\n"
    "\n"
    "  --quick        about 30 seconds in all (default: about 200)\n"
    "  --paths LIST   which paths, separated by commas (default: shm,tcp): shm, tcp, verbs (RDMA\n"
    "                 by hardware), rxe, siw (in software: only ratios; ./dev lab perf)\n"
    "  --repeat N     rounds; the results are medians over them (default: 7, with --quick 3)\n"
    "  --seconds S    how long each leg runs in a round (default: 1, with --quick what fits)\n"
    "  --json FILE    write one JSON object per metric and line\n";

// `arguments` without the program's name. INVALID_ARGUMENT names the one that is wrong.
absl::StatusOr<PerfOptions> ParsePerfOptions(const std::vector<std::string>& arguments);

}  // namespace weft::bench
