// Two worker processes of one kind on one path: a server's end and a client's, each pinned to a
// processor, connected to each other and to this process by sockets.
//
// This process never touches a fabric: the workers are started before anything else happens, by
// fork and exec of this same program.
//
// Threads: one.
// Lifetime: the destructor ends both processes and waits for them.
// Errors: UNAVAILABLE with the worker's own words; DEADLINE_EXCEEDED when one does not answer.
//   After an error the pair is of no use.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/perf/cell/cell.h"
#include "bench/perf/cell/figures.h"
#include "bench/perf/cell/perf_path.h"

namespace weft::bench {

struct ProcessPairOptions {
  std::string kind;  // of EndKinds()
  PerfPath path;
  int server_cpu = 0;
  int client_cpu = 0;
};

class ProcessPair {
 public:
  // Returns when both have started; AwaitReady() when they are connected. In between, other pairs
  // can be started.
  static absl::StatusOr<std::unique_ptr<ProcessPair>> Start(const ProcessPairOptions& options);
  ~ProcessPair();
  ProcessPair(const ProcessPair&) = delete;
  ProcessPair& operator=(const ProcessPair&) = delete;

  absl::Status AwaitReady();

  // Both ends work for about `seconds`; nobody else of ours does meanwhile.
  absl::StatusOr<Figures> Run(const Cell& cell, double seconds);

  const ProcessPairOptions& options() const { return options_; }

 private:
  struct Worker {
    pid_t pid = -1;
    int fd = -1;  // the socket to it
  };

  explicit ProcessPair(const ProcessPairOptions& options) : options_(options) {}

  absl::Status StartWorker(bool is_client, int cpu, int peer_fd, Worker* worker);
  std::string NameOfWorker(const Worker& worker) const;
  absl::Status Tell(const Worker& worker, const std::string& command) const;
  // The worker's answer: what follows the expected word.
  absl::StatusOr<std::string> Answer(const Worker& worker, const std::string& expected,
                                     double within_s) const;
  void End(Worker& worker);

  const ProcessPairOptions options_;
  Worker server_;
  Worker client_;
};

}  // namespace weft::bench
