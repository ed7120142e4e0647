// Which RDMA ports and addresses a process would offer, in which order, and why not the others.
//
// An offer is one address of one port: connections over it are bound to that address, and so to
// its port, its GID and its kind of link. Order: by kind of link (InfiniBand, RoCE v2, RoCE v1,
// iWARP), ports near to the engine's processors first, then the faster, IPv4 before IPv6, then by
// name. Ports that are alike but for the name begin with the one that the filter says, and go
// round: so connections between the same hosts can use different cards.
//
// Threads: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/devices/rdma_port.h"
#include "transport/devices/subnet.h"

namespace weft {

// What the user allows; empty or negative: everything.
struct RdmaFilter {
  std::vector<std::string> devices;  // "mlx5_0" (all ports), "mlx5_0:1"
  int gid_index = -1;
  std::vector<Subnet> subnets;
  uint32_t first_port = 0;  // LinkOptions::first_port: takes none away
};

// What this process has to know of itself.
struct RdmaProcessFacts {
  uint64_t memlock_bytes = 0;      // RLIMIT_MEMLOCK; ~0: unlimited
  bool may_lock_any = false;       // CAP_IPC_LOCK: drivers then do not count; siw does
  uint64_t wanted_lock_bytes = 0;  // what one domain registers at least
  std::vector<int> near_nodes;     // NUMA nodes whose ports come first; empty: unknown
};
// Near are the node `numa_node`, of an engine that has one; else (-1) those of the processors that
// this thread may run on.
RdmaProcessFacts ReadRdmaProcessFacts(uint64_t wanted_lock_bytes, int numa_node = -1);

struct RdmaOffer {
  std::string device;  // "mlx5_0:1"
  LinkKind link = LinkKind::kUnknown;
  RdmaAddress address;   // host empty where the port has none
  std::string unusable;  // empty: it can be used; else why not, and what to do
};

// Offers at most this many (a host with more ports names those it means by RdmaFilter::devices).
inline constexpr size_t kMaxRdmaOffers = 8;

// Why connections from this address of the port (null: the port has none) can't be used, and what
// to do; empty: they can.
std::string WhyNotUsable(const RdmaPort& port, const RdmaAddress* address, const RdmaFilter& filter,
                         const RdmaProcessFacts& process);

// Usable ones first, in order of preference; then the ports that have none, one offer each, with
// the reason; cut off behind kMaxRdmaOffers. Empty where there are no ports.
std::vector<RdmaOffer> ChooseRdma(const std::vector<RdmaPort>& ports, const RdmaFilter& filter,
                                  const RdmaProcessFacts& process);

// Why there are no ports at all: no RDMA device, no driver, what to look at.
std::string WhyNoRdma(const RdmaSources& sources);

}  // namespace weft
