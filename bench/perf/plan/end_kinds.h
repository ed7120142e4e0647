// The kinds of ends by name: "raw" (libfabric without Weft), "weft", "weft_tls" (with TLS), "aes"
// (what a processor seals at most), and the peers.
//
// To measure something else beside them: write its two ends (workload.h), a function that says
// which cells it has on which paths, and add a row to the table in end_kinds.cc. Metrics, JSON,
// plots and comparisons go by the name. Peers are measured where perf is told so (--peers), always
// in turns with the others.
//
// Threads, Lifetime: as in workload.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

struct EndKind {
  std::string_view name;
  bool is_peer;
  // Why it cannot measure this cell on this path, in a few words; "" when it can. Asked only for
  // cells that make sense (WhyNoCell()).
  std::string (*why_not)(const Cell& cell, const PerfPath& path);
  absl::StatusOr<std::unique_ptr<ClientEnd>> (*open_client)(const WorkloadOptions& options);
  absl::StatusOr<std::unique_ptr<ServerEnd>> (*open_server)(const WorkloadOptions& options);
  bool tls = false;  // WorkloadOptions::tls
};

// In the order in which they run.
const std::vector<EndKind>& EndKinds();

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenClientEnd(const std::string& kind,
                                                         const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenServerEnd(const std::string& kind,
                                                         const WorkloadOptions& options);

}  // namespace weft::bench
