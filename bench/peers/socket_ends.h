// Plain sockets: what everybody has without a library. TCP on 127.0.0.1 for the path tcp, a Unix
// socket for shm, as one would use them there; messages of a size that both ends know, without any
// frame around them. Three kinds:
//
//   sockets           both ends spin on non-blocking sockets; whatever is ready goes out, and comes
//                     in, with one system call. The fastest that sockets do.
//   sockets_single    the same with a system call for each message sent.
//   sockets_blocking  both ends sleep in recv(2). One outstanding only.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

enum class SocketStyle : uint8_t { kCoalescing = 1, kSingle = 2, kBlocking = 3 };

// As EndKind::why_not.
std::string WhyNotSockets(SocketStyle style, const Cell& cell, const PerfPath& path);

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenSocketClient(SocketStyle style,
                                                            const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenSocketServer(SocketStyle style,
                                                            const WorkloadOptions& options);

}  // namespace weft::bench
