// The paths that perf measures, by their names on the command line, and where they are here.
//
//   shm, tcp   on every machine
//   ofi_tcp    tcp as libfabric has it, on every machine
//   verbs      RDMA by hardware: this machine's best port
//   rxe, siw   RDMA in software: RoCE or iWARP without a card, as the lab has them (docs/lab.md).
//              Such a path is emulated: Weft in relation to raw libfabric says something there,
//              the figures themselves do not.
//
// Threads: pure functions, but for FindPerfPath(), which asks the kernel, and libfabric for RDMA.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/host_paths.h"
#include "transport/path.h"

namespace weft::bench {

struct PerfPath {
  std::string name;                // "rxe": metrics begin with it
  std::string device;              // RDMA: "rxe0:1"
  std::string host = "127.0.0.1";  // numeric; both ends are there. shm has no use for it

  // REQUIRES: the name is one of PerfPathNames().
  PathKind kind() const;
};

std::vector<std::string> PerfPathNames();
bool IsPerfPath(std::string_view name);
bool IsEmulated(std::string_view name);

// The path of that name on this machine. UNAVAILABLE says why there is none, and what to do.
// REQUIRES: IsPerfPath(name).
absl::StatusOr<PerfPath> FindPerfPath(const std::string& name);

// The same on a machine with these paths.
absl::StatusOr<PerfPath> ChoosePerfPath(const std::string& name, const HostPaths& host);

}  // namespace weft::bench
