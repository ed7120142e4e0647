// A worker process: one end of one kind of leg, told what to do by the driver through a socket.
//
//   driver -> client    "run <cell> <seconds>"     client -> driver   "ok <figures>"
//   driver -> server    "serve <cell>"                     server -> driver   "ok"
//   both, when they have opened                                              "ready"
//   both, on failure, instead of any of these                                "error <text>"
//
// The worker ends with the driver: when the socket closes, or by SIGTERM while it is busy.
//
// Threads: one. Lifetime: RunWorker() returns when the worker is to exit.
#pragma once

#include <string>
#include <vector>

#include "bench/perf/cell/perf_path.h"

namespace weft::bench {

struct WorkerOptions {
  std::string kind;  // of EndKinds()
  PerfPath path;
  bool is_client = false;
  int cpu = 0;
  int driver_fd = -1;
  int peer_fd = -1;
};

// As arguments for a new process, and back. `arguments` without the program's name; false: not
// those of a worker.
std::vector<std::string> ToArguments(const WorkerOptions& options);
bool ParseWorkerArguments(const std::vector<std::string>& arguments, WorkerOptions* options);

// The process's exit code.
int RunWorker(const WorkerOptions& options);

}  // namespace weft::bench
