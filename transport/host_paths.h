// Every path that this host offers, with what the kernel and libfabric know of its hardware, and
// whether connections would use it: what `weft devices` shows.
//
//   absl::StatusOr<HostPaths> host = ListHostPaths({});
//   for (const HostPath& path : host->paths) ...
//
// Threads: any. Lifetime: plain values, true at the moment of the call.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/path.h"
#include "transport/transport.h"

namespace weft {

// One address of one port of one device: what a connection may be bound to. What is not known, or
// does not apply, is empty, 0, or -1 for `gid_index` and `numa_node`.
struct HostPath {
  PathKind kind = PathKind::kTcp;
  LinkKind link = LinkKind::kUnknown;
  std::string device;     // "mlx5_0", "eth0", "memory"
  uint32_t port = 0;      // verbs: from 1
  std::string interface;  // the network interface that has the address
  std::string address;    // "192.168.77.1/24"

  std::string gid;  // verbs: "fe80:0000:...", the entry that connections of this address use
  int gid_index = -1;
  std::string gid_type;  // the kernel's word: "RoCE v2"

  std::string state;  // the kernel's word: "ACTIVE", "INIT" of RDMA ports, "up" of interfaces
  uint32_t mtu_bytes = 0;
  double gbit_per_s = 0;
  int numa_node = -1;
  std::string driver;
  std::string firmware;
  std::string vendor_id;  // as libfabric has them: "0x02c9"
  std::string device_id;
  uint64_t free_bytes = 0;  // shm: memory that is free

  // In which place connections would try it, from 1; 0: not at all. Paths that are one offer (all
  // addresses of tcp) share a place.
  uint32_t place = 0;
  std::string reason;              // why so, and what to do about it
  std::vector<std::string> notes;  // where libfabric says something else than the kernel
};

struct HostPaths {
  std::vector<HostPath> paths;  // shm, then RDMA ports by device, then network interfaces
  std::string no_rdma;          // why there is no RDMA port, and what to do; empty: there are some
  std::string fabric;           // "libfabric 1.17, providers: shm, tcp, ..."
  // What this process may register with RDMA devices (RLIMIT_MEMLOCK); ~0: unlimited.
  uint64_t memlock_bytes = 0;
  bool may_lock_any = false;       // CAP_IPC_LOCK: most devices then do not count
  uint64_t wanted_lock_bytes = 0;  // what an engine registers with one RDMA port at least
};

// For connections with these options; what they leave open, the environment says (docs/paths.md).
// INVALID_ARGUMENT names the option or variable that is wrong. Takes some 0.1 s.
absl::StatusOr<HostPaths> ListHostPaths(const LinkOptions& options);

}  // namespace weft
