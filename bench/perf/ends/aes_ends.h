// What TLS is measured by: the client's processor seals (bench/machine/aead.h), and nothing is
// sent. It runs in turns with the others, on a processor of theirs.
//
// Threads, Lifetime, Errors: as in workload.h.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "bench/perf/ends/workload.h"

namespace weft::bench {

inline constexpr uint32_t kAesBytes = 1 << 20;  // of the cells that it has

absl::StatusOr<std::unique_ptr<ClientEnd>> OpenAesClient(const WorkloadOptions& options);
absl::StatusOr<std::unique_ptr<ServerEnd>> OpenAesServer(const WorkloadOptions& options);

}  // namespace weft::bench
