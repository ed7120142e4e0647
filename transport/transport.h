// The seam between programs and networks: who listens and connects, and what for.
//
// A Transport listens and connects; both yield Connections (connection.h, which says what they
// promise). One address names a server; which path carries a connection is settled when it opens,
// and Connection::path() says which.
//
// Threads, Lifetime, Errors: as Connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/connection.h"
#include "transport/exports.h"
#include "transport/path.h"

namespace weft {

// The largest opaque hello (ListenOptions::hello, ConnectOptions::hello), in bytes: a table of
// some thousand method names fits.
inline constexpr size_t kMaxHelloBytes = size_t{256} << 10;

// Decides about arriving connections.
class Acceptor {
 public:
  // A peer has passed the handshake. Returns who handles the connection, or an error, whose text
  // the peer gets. OnOpen() follows when the path is up.
  virtual absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) = 0;

 protected:
  ~Acceptor() = default;
};

// A listening address. Destroying it stops listening; its connections live on.
class Listener {
 public:
  virtual ~Listener() = default;
  // As a client would dial it: the port is the one in use, also when 0 was asked for.
  virtual const std::string& address() const = 0;
};

// What LinkOptions::peer_timeout_ns may be, besides 0. Lower would take a scheduler's hiccup for a
// death; higher is no better than 0, for an hour is beyond what any caller waits.
inline constexpr uint64_t kMinPeerTimeoutNs = 100'000'000;
inline constexpr uint64_t kMaxPeerTimeoutNs = 3'600'000'000'000;

// Behaviour and resources of connections; both sides' limits are agreed in the handshake.
struct LinkOptions {
  // Behaviour.
  // Which path (docs/paths.md). What is empty here is taken from the environment's variable.
  std::vector<PathKind> paths;         // allowed, in order; WEFT_PATHS, else all, in default order
  std::vector<PathKind> denied_paths;  // of those, not these
  std::vector<std::string> devices;    // RDMA: "mlx5_0" (all its ports), "mlx5_0:1"; WEFT_DEVICES
  int gid_index = -1;                  // RDMA: addresses with this GID only; WEFT_GID_INDEX
  std::vector<std::string> subnets;    // RDMA: addresses in these only, "10.1.0.0/16"; WEFT_SUBNETS
  bool allow_routed = false;           // RDMA: also between subnets, where the network has routers
                                       // (RoCE v2, iWARP); WEFT_ROUTED=1. One side's word is enough
  uint64_t connect_timeout_ns = 5'000'000'000;  // for the whole of Connect()
  uint64_t path_timeout_ns = 1'000'000'000;     // for one candidate path, then the next
  // Silence of an open connection's peer after which this side ends it with UNAVAILABLE: 100 ms to
  // 1 h; 0: never. Each side has its own. Peers whose engine has its own thread send heartbeats and
  // are noticed when they are stopped, paused, cut off, or busy in one callback for as long as
  // this: so no handler that runs on an engine may take that long, or its clients take it for dead.
  // Peers that somebody has to drive (kCaller, kExternal) send none while nobody drives: of them
  // only a vanished host is noticed, by the kernel, in about this time but not below 2 s. A side
  // that nobody drives keeps its connections. Lower: dead peers are noticed sooner; on a busy
  // machine or a bad wire, living ones are lost. Debugging a peer: 0. (The simulated network has a
  // timeout of its own: SimOptions.)
  uint64_t peer_timeout_ns = 3'000'000'000;
  // Performance. For each connection, window_slots receive slots (their size belongs to the
  // engine's network) are held posted.
  uint32_t window_slots = 64;                 // 4..1024; batches the peer may have in flight
  uint32_t max_outstanding_operations = 128;  // 1..1024; one-sided, per connection
};

struct ListenOptions {
  LinkOptions link;
  std::string hello;  // opaque to the transport, given to every client; <= kMaxHelloBytes
  uint32_t max_connections = 1024;  // further clients are refused with RESOURCE_EXHAUSTED
};

struct ConnectOptions {
  LinkOptions link;
  std::string hello;  // opaque to the transport, given to the server
};

// One engine's network.
class Transport {
 public:
  virtual ~Transport() = default;

  // `address`: "host:port", "[v6]:port", port 0 for any free one, "unix:/path"; "sim:NAME" in the
  // simulated network. The acceptor outlives the listener.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           const ListenOptions& options,
                                                           Acceptor* acceptor) = 0;

  // Starts to connect. The result comes as OnOpen() or OnClosed(). An error here (bad address or
  // options) means that the handler is never called.
  virtual absl::StatusOr<Connection*> Connect(const std::string& address,
                                              const ConnectOptions& options,
                                              ConnectionHandler* handler) = 0;

  // What this engine's peers may be given leases on. The transport's.
  virtual Exports& exports() = 0;

  // Makes progress: completions, callbacks, control traffic; at most about `budget` events.
  // Returns how many there were. `now_ns` is the engine's clock.
  virtual int Poll(int budget, uint64_t now_ns) = 0;

  // Sends what was committed this turn. The engine calls it at the end of each turn.
  virtual void FlushAll() = 0;

  // Prepares to sleep on the engine's poller. False: there is work, poll again.
  virtual bool Arm() = 0;

  // Something is under way that a provider may fail to signal on a descriptor: the engine then
  // sleeps for at most kLongestBusySleepNs (engine.cc) at a time.
  virtual bool busy() const { return false; }

  // Called by an engine with nothing to do where time itself must be moved on (sim). Returns false
  // where it does nothing, and the engine sleeps on its poller.
  virtual bool Idle(uint64_t until_ns) {
    (void)until_ns;
    return false;
  }
};

}  // namespace weft
