// The ends by the name of their kind: "raw" (libfabric without Weft), "weft".
//
// Threads, Lifetime: as in workload.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/workload.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenClientEnd(const std::string& kind,
                                                         const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenServerEnd(const std::string& kind,
                                                         const WorkloadOptions& options);

}  // namespace weft::bench
