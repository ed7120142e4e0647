// Which network interfaces belong to an RDMA port, and so which IP addresses lead to it.
//
// Threads: any; reads files.
#pragma once

#include <string>
#include <vector>

#include "transport/devices/rdma_port.h"
#include "transport/devices/sysfs.h"

namespace weft {

// In this order; the first that finds any counts:
//   - those that the GID table names (RoCE; there VLANs and bonds appear as well)
//   - iWARP: the one whose hardware address the GID begins with
//   - the device's `parent` (Soft-RoCE)
//   - those of the same hardware with the same port number; for InfiniBand, the IPoIB ones, and
//     what they are enslaved to.
// REQUIRES: port.link and port.gids.
std::vector<std::string> InterfacesOfPort(const RdmaPort& port, const SysfsFolder& sysfs);

// The addresses of port.interfaces, each with its entry of the GID table.
std::vector<RdmaAddress> AddressesOfPort(const RdmaPort& port,
                                         const std::vector<InterfaceAddress>& interfaces,
                                         const SysfsFolder& sysfs);

}  // namespace weft
