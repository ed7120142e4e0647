// The network between real processes: engines whose connections travel over shared memory, RDMA or
// TCP, whichever is best for the two that meet.
//
//   absl::StatusOr<std::unique_ptr<Engine>> engine = OpenNetworkEngine({});
//   (*engine)->transport().Listen("127.0.0.1:0", {}, &acceptor);
//
// One address names a server: host:port, [v6]:port or unix:/path. Client and server agree there on
// a path, and docs/paths.md says how; WEFT_PATHS=shm,tcp in the environment restricts and orders
// the paths of every connection that does not say so itself (LinkOptions::paths). There are such
// variables for RDMA devices, GIDs and subnets too.
//
// Threads: any. Errors: INVALID_ARGUMENT names the option or variable and its bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "transport/engine.h"
#include "transport/region.h"
#include "transport/transport.h"

namespace weft {

struct NetworkOptions {
  // Behaviour.
  // Where tcp paths listen: an interface's name ("eth0") or one of its numeric addresses; empty:
  // all interfaces, over IPv4 and IPv6 where the system has both. (The control address is
  // Listen()'s; RDMA paths listen on the addresses of their ports.)
  std::string bind_interface;
  // Ways to a peer's memory over shared memory that one-sided operations may take by themselves:
  // memcpy into files that both map, and process_vm_readv(2) or process_vm_writev(2). Each is taken
  // where it works; without both, the peer is asked to copy. For who suspects one of them.
  bool shm_mappings = true;
  bool shm_system_calls = true;

  // Performance.
  // Bytes of one batch, 1024..65536 in steps of 64: the largest message that travels without a
  // round trip of its own is a little smaller. Larger: more memory (each connection holds two
  // windows of slots), fewer round trips for messages in between. Shared memory uses at most 8192
  // of it, which is what its rings are made for; tcp sends messages of up to 64 KiB without a round
  // trip whatever this is (transfer_table.h).
  uint32_t slot_bytes = 8192;
  // Registered slots, in bytes, for each path: windows of new connections beyond it are refused
  // with RESOURCE_EXHAUSTED. At least 1 MiB. On tcp a quarter is for messages above slot_bytes;
  // below 64 MiB there is none, and they are fetched.
  uint64_t max_pool_bytes = uint64_t{256} << 20;
  // Buffers of large messages, in bytes, for each path and direction; taken as needed. At least
  // kMaxMessageBytes. Lower: senders of large messages meet RESOURCE_EXHAUSTED sooner.
  uint64_t max_large_bytes = uint64_t{256} << 20;
  // What the application may have registered at one time with each path (Connection::Register(),
  // buffer pools), in bytes. At least 1 MiB. Lower: RESOURCE_EXHAUSTED, which names it, sooner. The
  // counters memory.registrations and memory.registered_bytes of the engine say how much there is.
  uint64_t max_region_bytes = kDefaultRegionBytes;
  // Bytes of all exports (Transport::exports()) together. They cost nothing: it bounds what a
  // mistaken length can offer to peers.
  uint64_t max_exported_bytes = kDefaultExportedBytes;
};

// An engine on the real network.
absl::StatusOr<std::unique_ptr<Engine>> OpenNetworkEngine(const EngineOptions& engine_options,
                                                          const NetworkOptions& options = {});

// The network for an engine: what OpenNetworkEngine() gives to Engine::Create().
absl::StatusOr<std::unique_ptr<Transport>> MakeNetworkTransport(const EngineContext& engine,
                                                                const NetworkOptions& options);

// Which path carries this connection and why, a line for each candidate. For an open connection, or
// inside OnClosed(). Ends with a newline.
std::string ExplainConnection(const Connection& connection);

// What this process has to build paths of: libfabric's version and providers, and the variables
// that restrict it. Takes about 0.1 s the first time. Ends with a newline.
std::string ExplainNetwork();

}  // namespace weft
