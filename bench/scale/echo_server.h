// A server that answers Perf.Echo, and lends memory if it is to, in a process of its own, and can
// be asked what it costs.
//
//   when it has opened                                        it answers "ok <address>"
//   "serve": it busy polls until Perf.EndRun is called                   "ok"
//   "usage"                                                              "ok <usage>"
//   on failure, instead of any of these                                  "error <text>"
//
// It ends with the other process, or when the EchoServer is destroyed.
//
// Threads: one. Lifetime: the destructor ends the process and waits for it.
// Errors: UNAVAILABLE with the process's own words.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bench/scale/process_usage.h"
#include "rpc/client/channel.h"
#include "transport/engine.h"
#include "transport/path.h"

namespace weft::bench {

struct EchoServerOptions {
  enum class Waiting : uint8_t {
    kOnCommand = 1,  // one thread, which busy polls while it is told to serve, and else rests
    kAdaptive = 2,   // an engine with a thread of its own
  };
  PathKind path = PathKind::kShm;
  Waiting waiting = Waiting::kOnCommand;
  uint64_t spin_ns = kDefaultSpinNs;  // kAdaptive
  int cpu = 0;
  uint32_t max_connections = 1024;
  uint32_t lent_bytes = 0;  // kOnCommand: by Perf.Lend and Perf.Fetch; 0: none
};

class EchoServer {
 public:
  static absl::StatusOr<std::unique_ptr<EchoServer>> Start(const EchoServerOptions& options);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  const std::string& address() const { return address_; }

  // kOnCommand: from now on it busy polls; Rest() ends that, by a call over `channel`.
  absl::Status Serve();
  absl::Status Rest(Channel& channel);

  absl::StatusOr<ProcessUsage> Usage();

 private:
  EchoServer() = default;
  absl::StatusOr<std::string> Answer();

  pid_t pid_ = -1;
  int fd_ = -1;
  std::string address_;
};

// In the new process: true if `arguments` (without the program's name) are those of an EchoServer,
// which has then run, and *exit_code is the process's.
bool RunEchoServer(const std::vector<std::string>& arguments, int* exit_code);

}  // namespace weft::bench
