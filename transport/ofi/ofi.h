// libfabric as a provider of links: RDMA, and TCP for those who ask for it by name.
//
// A domain is one provider, opened by one engine (transport/link.h says what it does). This header
// is all that the rest of Weft sees of libfabric.
//
//   verbs    over one address of one RDMA device's port: InfiniBand, RoCE or iWARP. One listening
//            endpoint, and a connected endpoint for each link, all receiving into one shared queue.
//            Memory is registered with the device and locked. A port that goes down ends its links
//            within a second or so. A peer's host that vanishes is noticed late or never: the
//            caller watches over it, and calls Link::Abandon(). A write
//            to a region that is not there may be reported as done on iWARP; the connection ends
//            right after.
//
//   ofi_tcp  the same over TCP. A link that breaks says so. For trusted networks only: whoever
//            reaches the listening endpoint may hold it up, and what a connected peer writes is not
//            checked by the provider and can end the process.
//
// Threads: opening from any thread; a domain is used on its engine's thread.
// Lifetime: what `options` points to outlives the domain.
// Errors: UNAVAILABLE from opening says in words what is missing and is meant for `explain`;
//   INVALID_ARGUMENT names the option.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/clock.h"
#include "core/timer_wheel.h"
#include "transport/link.h"

namespace weft {

struct OfiOptions {
  // Behaviour.
  BatchSink* sink = nullptr;  // receives every batch; required
  // Numeric host to listen at. verbs: the port's own address, required. ofi_tcp: empty for a domain
  // that does not listen: a client's.
  std::string bind_address;
  // verbs: the RDMA device and its port, as in "mlx5_0:1", required; and what kind of link it has.
  std::string device;
  LinkKind link = LinkKind::kUnknown;
  // verbs: a thread of its own asks for the way to a peer (address_probe.h). Without it, Connect()
  // may block for two seconds.
  bool may_start_threads = true;
  // verbs: the engine's, by which it looks whether the port is up (port_watch.h); where it looks.
  const Clock* clock = nullptr;
  TimerWheel* timers = nullptr;  // null: it looks when a link begins, and not again
  std::string sysfs = "/sys";

  // Performance.
  uint32_t slot_bytes = 4096;                  // of sends and receives; multiple of 64, 256..1 MiB
  uint32_t max_outstanding_operations = 1024;  // one-sided, in the whole domain; 1..65536
  uint64_t max_pool_bytes = uint64_t{256} << 20;  // registered slots at most; taken as needed
};

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenOfiTcpDomain(const OfiOptions& options);
absl::StatusOr<std::unique_ptr<LinkDomain>> OpenVerbsDomain(const OfiOptions& options);

// Loads libfabric, which starts its providers and lets them look for their devices: 0.3 s and more,
// the first time in a process. For before the moment when somebody waits.
void StartProviders();

// The version of the library that this process runs with: major << 16 | minor. 0: there is none.
uint32_t FabricLibraryVersion();

// "libfabric 1.17, providers: shm, tcp, ...": for explain texts. The first call in a process takes
// some 0.3 s.
std::string DescribeProviders();

}  // namespace weft
