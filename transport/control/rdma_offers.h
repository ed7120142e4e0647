// This host's RDMA ports as offers for the handshake.
//
// Ports, addresses and the process' limits are read when they are first asked for, and again when
// what was read is old: a port that comes up is noticed, and a handshake costs no file. A host
// without RDMA pays one look at a folder that is not there.
//
// Threads: one engine's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/function.h"
#include "transport/control/hello.h"
#include "transport/devices/rdma_choice.h"

namespace weft {

// What was read of a host.
struct RdmaView {
  std::vector<RdmaPort> ports;
  std::string why_none;  // where there are no ports
  RdmaProcessFacts process;
};

// Of locked memory a domain wants at least: its queues, the windows of one connection in both
// directions, and the largest message. With less, connections and messages fail one by one.
uint64_t WantedLockBytes(uint32_t window_slots, uint32_t slot_bytes);

// The running system's. `wanted_lock_bytes`: what one domain may come to register. `numa_node`: the
// engine's (EngineContext::numa_node).
RdmaView ReadRdmaView(uint64_t wanted_lock_bytes, int numa_node = -1);

class RdmaOffers {
 public:
  // What is told of a host may be this old. Reading costs some milliseconds on a host with several
  // ports, because each has a table of some hundred GIDs.
  static constexpr uint64_t kRefreshNs = 5'000'000'000;
  // A hello has room for them, for shm and tcp, and for kinds that are to come.
  static_assert(kMaxRdmaOffers + 4 <= kMaxOfferedPaths);

  explicit RdmaOffers(Function<RdmaView()> read) : read_(std::move(read)) {}

  // Usable addresses first, in order of preference, then ports that are not usable, with reasons;
  // without any port one that says why. Never empty.
  std::vector<PathOffer> Choose(const RdmaFilter& filter, uint64_t now_ns);

 private:
  Function<RdmaView()> read_;
  RdmaView view_;
  bool has_read_ = false;
  uint64_t read_ns_ = 0;
};

}  // namespace weft
