// UCX, by its own program, ucx_perftest (Debian's ucx-utils): active messages, and one-sided
// transfers of the kinds that it has. It has no calls and no replies:
//
//   unary, one outstanding   ucp_am_lat: a message there and one back, twice the one-way time that
//                            the program tells. (More outstanding: nothing that is like it.)
//   stream                   ucp_am_bw
//   read, write              ucp_get, ucp_put_bw; one outstanding, write: ucp_put_lat
//
// over UCX_TLS=posix,sysv,cma or tcp; what is not said here is UCX's own choice, which is its
// fastest. Both ends run as children of the workers, on their processors.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

// As EndKind::why_not.
std::string WhyNotUcx(const Cell& cell, const PerfPath& path);

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenUcxClient(const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenUcxServer(const WorkloadOptions& options);

// The last line of what `ucx_perftest -f` prints. nullopt: not such a line.
struct UcxResult {
  double p50_us = 0;      // of one way, where it is a latency
  double overall_us = 0;  // the mean
  double per_s = 0;       // messages
};
std::optional<UcxResult> ParseUcxResult(const std::string& output);

}  // namespace weft::bench
