// gRPC, tuned: one channel without compression, retries, statistics and service configuration,
// HTTP/2 frames and windows of megabytes; both ends asynchronous, one thread each, which spins on
// the completion queue and never sleeps. A Unix socket for the path shm, TCP (without delay) on
// 127.0.0.1 for tcp, there also with gRPC's own TLS: the server has a certificate. Bulk leaves
// protobuf out: byte buffers of gRPC's own on both sides.
//
// In builds with --repo_env=WEFT_PEERS=1, where it is installed; else WhyNotGrpc() says so.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

// As EndKind::why_not.
std::string WhyNotGrpc(const Cell& cell, const PerfPath& path);

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenGrpcClient(const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenGrpcServer(const WorkloadOptions& options);

}  // namespace weft::bench
