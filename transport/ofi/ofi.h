// libfabric as a provider of links: TCP and RDMA.
//
// A domain is one provider, opened by one engine (transport/link.h says what it does). This header
// is all that the rest of Weft sees of libfabric.
//
//   tcp   one listening endpoint, and a connected endpoint for each link, all receiving into one
//         shared queue. A link that breaks says so. libfabric's tcp is not hardened against a
//         hostile peer: only peers that present the nonce of a handshake are accepted, and the
//         network should be a trusted one.
//
//   verbs as tcp, over one address of one RDMA device's port: InfiniBand, RoCE or iWARP. Memory is
//         registered with the device and locked. A peer's host that vanishes is noticed late or
//         never: the caller watches over it, and calls Link::Abandon(). A write to a region that is
//         not there may be reported as done on iWARP; the connection ends right after.
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
#include "transport/link.h"

namespace weft {

struct OfiOptions {
  // Behaviour.
  BatchSink* sink = nullptr;  // receives every batch; required
  // tcp: numeric host to listen on; empty: all IPv4 interfaces. verbs: the port's own address,
  // required.
  std::string bind_address;
  // verbs: the RDMA device and its port, as in "mlx5_0:1", required; and what kind of link it has.
  std::string device;
  LinkKind link = LinkKind::kUnknown;
  // verbs: a thread of its own asks for the way to a peer (address_probe.h). Without it, Connect()
  // may block for two seconds.
  bool may_start_threads = true;

  // An epoll that the engine sleeps on. tcp puts there, for the time of a sleep, what the sleep
  // waits for: each epoll around another makes a wake-up longer. -1: descriptor() tells of all.
  int sleep_epoll = -1;

  // Performance.
  // Multiple of 64, 256..1 MiB.
  uint32_t slot_bytes = 4096;
  // tcp: of receives, and of the sends for messages that need more than slot_bytes. Multiple of 64,
  // up to 1 MiB; not more than slot_bytes (0): there are none. Receives are shared by all links,
  // and wide sends under way few for each, so that this is memory of the busy links.
  uint32_t wide_slot_bytes = 0;
  uint32_t max_outstanding_operations = 1024;     // one-sided, in the whole domain; 1..65536
  uint64_t max_pool_bytes = uint64_t{256} << 20;  // registered slots at most; taken as needed
  // tcp: links whose sockets are asked one by one, which is fastest for few; an epoll finds the
  // others. At most 64.
  uint32_t near_links = 8;
};

absl::StatusOr<std::unique_ptr<LinkDomain>> OpenTcpDomain(const OfiOptions& options);
absl::StatusOr<std::unique_ptr<LinkDomain>> OpenVerbsDomain(const OfiOptions& options);

// A tcp domain that listens on all interfaces has an address without a host ("*:4711"). This is
// the address with the host by which the peer is known to be reachable.
std::string WithHost(const std::string& address, const std::string& host);

// Lets libfabric start its providers and look for their devices: 0.1 s and more, the first time in
// a process. For before the moment when somebody waits.
void StartProviders();

// The version of the library that this process runs with: major << 16 | minor.
uint32_t FabricLibraryVersion();

// "libfabric 1.17, providers: shm, tcp, ...": for explain texts. The first call in a process takes
// about 0.1 s.
std::string DescribeProviders();

}  // namespace weft
