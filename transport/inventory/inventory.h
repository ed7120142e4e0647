// Joins what the kernel says of this host's devices, what libfabric says, and what the user allows.
//
// Threads: DescribeHost() is a pure function.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "transport/devices/net_interface.h"
#include "transport/devices/rdma_choice.h"
#include "transport/devices/rdma_port.h"
#include "transport/host_paths.h"
#include "transport/ofi/device_list.h"

namespace weft {

// One kind of path, as this process has it.
struct KindFacts {
  std::string denied;  // why the policy leaves it out; empty: it does not
  // Why libfabric cannot do it; empty: it can.
  std::string missing;
  std::vector<FabricDevice> devices;  // of libfabric's provider
};

struct InventoryFacts {
  std::vector<PathKind> order;  // in which kinds are tried
  std::map<PathKind, KindFacts> kinds;
  uint64_t available_memory_bytes = 0;
  std::vector<RdmaPort> ports;
  RdmaFilter filter;
  RdmaProcessFacts process;
  std::vector<NetInterface> interfaces;
};

// One path for shared memory, one for each address of each port and interface, and one for each of
// them that has no address.
std::vector<HostPath> DescribeHost(const InventoryFacts& facts);

}  // namespace weft
