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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/connection.h"
#include "transport/descriptor.h"
#include "transport/exports.h"
#include "transport/path.h"
#include "transport/security.h"

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

class SharedListener;

// A listening address. Destroying it stops listening; its connections live on.
class Listener {
 public:
  virtual ~Listener() = default;
  // As a client would dial it: the port is the one in use, also when 0 was asked for.
  virtual const std::string& address() const = 0;
  // It listens at an address that other hosts may reach: not 127.0.0.0/8, [::1] or a Unix socket.
  virtual bool is_beyond_host() const { return false; }
  // Descriptors of as many connections as ListenOptions::max_connections, and of strangers;
  // handshakes, of up to five each for a moment, are not counted. 0: none, as in the simulated
  // network.
  virtual uint64_t descriptors_wanted() const { return 0; }
  // For other engines to take part (Transport::JoinListener()); null: they cannot, in this network.
  virtual std::shared_ptr<SharedListener> shared() const { return nullptr; }

  // --- for another process that takes the address over ------------------------------------------
  // Two processes have the same socket then. Only one of them accepts: a link's socket looks for
  // the process where its handshake is.

  // The socket that listens; -1: this network, or this engine, has none.
  virtual int socket() const { return -1; }
  // Clients that come from now on are kept aside, and handshakes that have begun go on.
  virtual void HoldClients() {}
  // Some of them, on this engine, have not ended.
  virtual bool has_handshakes() const { return false; }
  // Accepts nobody before Resume(). Who was kept aside: for the other process.
  virtual std::vector<Descriptor> StopAccepting() { return {}; }
  // The address is the other process's: the file of a Unix socket stays behind this listener.
  virtual void LeaveAddress() {}
  // A client that was accepted at this address, by another process or before StopAccepting().
  virtual void TakeClient(Descriptor client) { client.Reset(); }
  // Accepts, at ListenOptions::socket or as it did before StopAccepting(), and keeps nobody aside.
  virtual absl::Status Resume() { return absl::OkStatus(); }
};

struct ListenOptions {
  LinkOptions link = {};
  std::string hello = {};  // opaque to the transport, given to every client; <= kMaxHelloBytes
  // Further clients are refused with RESOURCE_EXHAUSTED. Of all engines that share the listener.
  uint32_t max_connections = 1024;
  // Among them of one client: whom TLS has proved to be the same (all who share a secret are); else
  // one user, over shm and unix:; else one address (of IPv6 the first 64 bits). 1 to
  // max_connections. 0: all but the last eighth of them, which is for clients that have less than
  // their share. It is kept with any number but max_connections (then one may have everything), if
  // there are at least 8.
  // Lower: more clients have to take part to keep others out; proxies, and hosts with many
  // programs, are refused sooner.
  uint32_t max_connections_of_one = 0;
  // Clients come by TLS and prove who they are; others are told that they must. Not in the
  // simulated network.
  std::optional<SecurityOptions> security = {};
  // Another process's socket, which listens at the address already: it is duplicated, and nobody is
  // accepted before Listener::Resume(). INVALID_ARGUMENT: it is no such socket. -1: a new one.
  int socket = -1;
  // So many share the listener, this one among them: nobody is accepted before all have joined, so
  // that each client finds the engine that it asks for (LinkOptions::server_engine).
  uint32_t engines = 1;
};

struct ConnectOptions {
  LinkOptions link = {};
  std::string hello = {};  // opaque to the transport, given to the server
  // The server must speak TLS and prove who it is. Not in the simulated network.
  std::optional<SecurityOptions> security = {};
};

// One engine's network.
class Transport {
 public:
  virtual ~Transport() = default;

  // `address`: "host:port", "[v6]:port", port 0 for any free one, "unix:/path"; "systemd:NAME", a
  // socket that the service manager has opened for this process (docs/guide.md, "Sockets of a
  // service manager"); "sim:NAME" in the simulated network. The acceptor outlives the listener.
  virtual absl::StatusOr<std::unique_ptr<Listener>> Listen(const std::string& address,
                                                           const ListenOptions& options,
                                                           Acceptor* acceptor) = 0;

  // Takes part in what another engine's listener accepts (Listener::shared()): from now on each
  // client is that engine's which has the fewest connections, or that it asks for, and so are its
  // callbacks. `options` are as that listener's. Where that one is gone, this one gets nobody.
  // RESOURCE_EXHAUSTED: 64 engines share it. UNIMPLEMENTED: not in this network.
  virtual absl::StatusOr<std::unique_ptr<Listener>> JoinListener(
      const std::shared_ptr<SharedListener>& shared, const ListenOptions& options,
      Acceptor* acceptor) {
    (void)shared, (void)options, (void)acceptor;
    return absl::UnimplementedError("in this network a listener belongs to one engine");
  }

  // Starts to connect. The result comes as OnOpen() or OnClosed(). An error here (bad address or
  // options) means that the handler is never called.
  virtual absl::StatusOr<Connection*> Connect(const std::string& address,
                                              const ConnectOptions& options,
                                              ConnectionHandler* handler) = 0;

  // What this engine's peers may be given leases on. The transport's.
  virtual Exports& exports() = 0;

  // The path numbers (RemoteAccess::path_number()) of this engine's connections: from here on,
  // kMaxPathNumbers. Constant; any thread.
  virtual uint32_t first_path_number() const { return 0; }

  // Makes progress: completions, callbacks, control traffic; at most about `budget` events.
  // Returns how many there were. `now_ns` is the engine's clock.
  virtual int Poll(int budget, uint64_t now_ns) = 0;

  // Sends what was committed this turn. The engine calls it at the end of each turn.
  virtual void FlushAll() = 0;

  // Prepares to sleep on the engine's poller, where something may be ready already. False: there is
  // work of which the poller will not tell, poll again.
  virtual bool Arm() = 0;

  // Something is under way that a provider may fail to signal on a descriptor: the engine then
  // sleeps for at most kLongestBusySleepNs (10 ms) at a time.
  virtual bool busy() const { return false; }

  // Called by an engine with nothing to do where time itself must be moved on (sim). Returns false
  // where it does nothing, and the engine sleeps on its poller.
  virtual bool Idle(uint64_t until_ns) {
    (void)until_ns;
    return false;
  }
};

}  // namespace weft
