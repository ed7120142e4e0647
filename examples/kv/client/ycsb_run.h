// One YCSB workload against one server: what was done, how long it took, what went wrong.
//
// Threads:  main()'s; the engine is driven inside the functions.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/clock.h"
#include "core/histogram.h"
#include "examples/kv/client/command_line.h"
#include "examples/kv/client/session.h"
#include "examples/kv/ycsb/workload.h"

namespace kv::client {

struct YcsbResult {
  double seconds = 0;
  uint64_t operations = 0;  // that ended well
  uint64_t calls = 0;       // a read-modify-write makes two
  uint64_t errors = 0;      // operations that failed, or returned what can't be right
  absl::Status first_error;
  bool interrupted = false;
  uint64_t server_cpu_ns = 0;      // that the server's process used meanwhile; 0: not known
  weft::LatencyHistogram latency;  // of operations that ended well, all kinds together
  std::array<weft::LatencyHistogram, ycsb::kOperationKinds> latency_of;

  double OperationsPerSecond() const { return static_cast<double>(operations) / seconds; }
  double ServerCpuUs() const {  // for each operation
    return operations == 0 ? 0
                           : static_cast<double>(server_cpu_ns) / weft::kNsPerUs /
                                 static_cast<double>(operations);
  }
  double CallsPerSecond() const { return static_cast<double>(calls) / seconds; }
};

// Stores the records 0 to options.records - 1.
absl::Status StoreYcsbRecords(Session& session, const YcsbOptions& options);

// Runs one workload on records that are stored. Ends early when the server is gone.
// The result is large: it comes on the heap.
std::unique_ptr<YcsbResult> RunYcsbWorkload(Session& session, const YcsbOptions& options,
                                            const ycsb::Workload& workload);

}  // namespace kv::client
