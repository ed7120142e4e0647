// The two ends of one kind of leg (raw libfabric, Weft, a peer), as the worker processes see them.
//
// Each end lives in a process of its own, so that nothing is shared but the wire. The ends find
// each other through `peer_fd`, a connected stream socket between the two processes.
//
// Threads: one, that created it.
// Lifetime: peer_fd outlives the ends.
// Errors: an error ends the leg for the whole run; its text is for the person at the terminal.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "bench/perf/cell/perf_path.h"

namespace weft::bench {

struct WorkloadOptions {
  PerfPath path;
  int peer_fd = -1;
  bool tls = false;  // between the two ends, by either's own library
};

// Measures.
class ClientEnd {
 public:
  virtual ~ClientEnd() = default;
  // Runs for about `seconds`, then tells the server's end that this run is over. What has to be set
  // up for such a cell comes first, and is not counted.
  virtual absl::StatusOr<Figures> Run(const Cell& cell, double seconds) = 0;
  // Between runs, now and then: keeps the connection alive without using the processor.
  virtual void Rest() {}
};

// Answers.
class ServerEnd {
 public:
  virtual ~ServerEnd() = default;
  // Busy polls until the client's end says that the run is over; both run the same cell. The client
  // starts the next run when this has returned.
  virtual absl::Status Serve(const Cell& cell) = 0;
  virtual void Rest() {}
};

}  // namespace weft::bench
