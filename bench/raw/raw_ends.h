// The two ends of the raw legs: bare messages and writes over RawFabric.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenRawClient(const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenRawServer(const WorkloadOptions& options);

std::string FabricLibraryVersion();  // "1.17"

}  // namespace weft::bench
