// The MTU of an RDMA port, derived from its network interface: the kernel has no file for it.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string_view>

#include "transport/path.h"

namespace weft {

// What one RDMA frame carries, in bytes; 0: unknown.
//   RoCE        the largest of 256, 512, 1024, 2048, 4096 that fits into the interface's MTU
//               beside the largest headers, as the kernel itself computes it
//   iWARP       the interface's MTU: RDMA travels in a TCP stream, whose segments it bounds
//   InfiniBand  an IPoIB interface in datagram mode has 4 bytes less than the fabric. In connected
//               mode ("connected") its MTU says nothing: 0
uint32_t PortMtu(LinkKind link, uint32_t interface_mtu, std::string_view ipoib_mode);

}  // namespace weft
