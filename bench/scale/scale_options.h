// weft_scale's command line.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/path.h"

namespace weft::bench {

struct ScaleOptions {
  std::vector<std::string> programs;  // of kScalePrograms; never empty after parsing
  std::vector<PathKind> paths = {PathKind::kShm, PathKind::kTcp};
  int rounds = 5;           // legs that are compared alternate so often; medians over them
  double seconds = 1;       // of one leg of one round
  double idle_seconds = 5;  // over which an idle server's processor time is counted
  uint32_t connections = 1000;
  uint32_t transfer_bytes = 64 << 20;
  std::string json_file;  // empty: none
  bool help = false;

  // Not on the command line: where both sides run. The same where there is one processor only.
  int client_cpu = 0;
  int server_cpu = 0;
  std::vector<int> cpus = {};  // all that there are; one at least
};

inline constexpr const char* kScalePrograms[] = {"connections", "engines", "idle",      "overload",
                                                 "servers",     "threads", "transfers", "wakeup"};

inline constexpr char kScaleUsage[] =
    "usage: weft_scale [PROGRAM...] [--quick] [--paths LIST] [--connections N] [--repeat N]\n"
    "                  [--seconds S] [--transfer-mib N] [--json FILE]\n"
    "\n"
    "What many connections, several engines, an idle server and a sleeping one cost, what many\n"
    "threads get that call over one channel, what a call costs beside large transfers, and what\n"
    "overload leaves of a server. Each is a comparison within one run, on two processors.\n"
    "\n"
    "  connections    64 B calls that go round N connections of one server engine, against calls\n"
    "                 over one; memory and descriptors of each connection, on both sides\n"
    "  engines        pairs of a client's and a server's engine: one, and two on two processors\n"
    "  idle           processor time of a server that has connections and nothing to do\n"
    "  overload       a server that is offered three times what it can do: without a limit, with\n"
    "                 a fixed one, with the adaptive one; over the first path only\n"
    "  servers        a server with one engine, with two and with four, each with a client of its\n"
    "                 own, on one processor and on all: processor time of a call, calls in a\n"
    "                 second; and until engines that became uneven are even again\n"
    "  threads        64 B calls of one, 4 and 16 threads that block on one channel, with an "
    "engine\n"
    "                 that the callers drive, and with one that has a thread\n"
    "  transfers      64 B calls beside eight large transfers over the same connection, all the\n"
    "                 time, against calls beside one: reads, fetches, writes,\n"
    "                 and unordered writes\n"
    "  wakeup         what a sleeping server adds to a round trip, beside what an eventfd takes\n"
    "                 (default: all of them)\n"
    "\n"
    "  --quick        about a minute in all\n"
    "  --paths LIST   which paths, separated by commas (default: shm,tcp)\n"
    "  --connections N  how many (default: 1000)\n"
    "  --repeat N     rounds; the results are medians over them (default: 5, with --quick 3)\n"
    "  --seconds S    how long each leg runs in a round (default: 1, with --quick 0.3)\n"
    "  --transfer-mib N  of each transfer of the program transfers (default: 64)\n"
    "  --json FILE    write one JSON object per metric and line\n";

// `arguments` without the program's name. INVALID_ARGUMENT names the one that is wrong.
absl::StatusOr<ScaleOptions> ParseScaleOptions(const std::vector<std::string>& arguments);

}  // namespace weft::bench
