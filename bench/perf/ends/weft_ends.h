// The two ends of the Weft legs: calls, bulk and one-sided transfers through the public API, and
// bare messages over a connection of their own.
//
// With TLS both sides have a secret in common, and TLS 1.3 carries all of it over tcp.
//
// The client drives its engine itself while it waits; the server busy polls an external engine
// while a run lasts. So both are on the fastest way that the library has.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenWeftClient(const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenWeftServer(const WorkloadOptions& options);

}  // namespace weft::bench
