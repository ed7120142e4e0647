// The network interfaces of this host, as the kernel describes them.
//
// Threads: any; plain values. Errors: what cannot be read is left empty.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/devices/rdma_port.h"

namespace weft {

struct NetInterface {
  std::string name;    // "eth0"
  std::string state;   // the kernel's operstate: "up", "down", "unknown"
  std::string driver;  // of the hardware; empty: there is none (bonds, bridges, VLANs)
  uint32_t mtu_bytes = 0;
  double gbit_per_s = 0;  // 0: unknown, as on virtual cards
  int numa_node = -1;     // -1: unknown, or the machine has one
  std::vector<InterfaceAddress> addresses;
};

// Those that have an address in `sources.interfaces`, and those with hardware below them, by name.
std::vector<NetInterface> ReadNetInterfaces(const RdmaSources& sources);

}  // namespace weft
