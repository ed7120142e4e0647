// A Server runs services for the clients that connect to its addresses.
//
//   KvService kv;
//   auto server = weft::Server::Create();
//   if (auto s = (*server)->AddService(&kv); !s.ok()) return s;
//   if (auto s = (*server)->Listen("0.0.0.0:4711"); !s.ok()) return s;
//   (*server)->Wait();
//
// Threads: all functions from any thread, one at a time for AddService, Listen and OpenPeer; Wait
//   and Shutdown at the same time as others. Handlers run on the engine's thread, one after the
//   other, or on an Executor. WITH SEVERAL ENGINES (ServerOptions::engines) each has its thread,
//   and the same service objects serve all of them: handlers of one service run AT THE SAME TIME,
//   and so do authorizers, interceptors and `tenant_of`. The calls of one connection are one
//   engine's, and so one after the other without an Executor; two channels have two.
// Lifetime: services and executors stay until Shutdown() has returned, or the destructor; the
//   engine outlives the server, unless it is the server's own. The destructor is Shutdown(0) and
//   waits for handlers that still run.
//   REQUIRES: Wait, Shutdown and the destructor are not called from handlers.
// Errors: a request that cannot be run gets its error; a one-way message that cannot be run, or
//   whose handler fails, is counted (ServerStats) and logged at level warning; only a peer that
//   breaks the protocol loses its connection (DATA_LOSS), and never more than that.
// Invariants: a handler runs at most once for each call id; every request gets exactly one reply,
//   or its connection closes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/bytes.h"
#include "rpc/operation/etcd_options.h"
#include "rpc/operation/executor.h"
#include "rpc/server/server_limits.h"
#include "transport/options.h"
#include "transport/path.h"
#include "transport/security.h"
#include "weft/status.h"

namespace weft {

class Authorizer;
class Buffer;
class BufferPool;
class Channel;
class CompletionStore;
class Engine;
class ExportedMemory;
class Handover;
class Log;
class Registrations;
class ServerCore;
class ServerInterceptor;
class Service;
struct ChannelOptions;
struct ExportOptions;

struct ServerOptions {
  // Behaviour.
  std::string name = {};  // told to clients, stands in their errors; may be empty
  // Of a server with peers (OpenPeer()): 1 to 128 printable ASCII characters without blanks, and no
  // other server's. It is told, and not proved. Empty: the server has none, and takes none.
  std::string peer_id = {};
  // Where handlers run, by a key of each if it likes (Executor::For()); null: on the engine.
  // A handler on an engine's own thread may block for 1.5 s, half of its clients' peer_timeout_ns
  // by default (docs/guide.md, "How long a handler may block"): slow ones need an executor.
  Executor* executor = nullptr;
  // What runs around each handler (weft/interceptor.h): 0 to kMaxInterceptors. They outlive this.
  std::vector<ServerInterceptor*> interceptors = {};
  // Clients come by TLS, and prove who they are (weft/security.h); others are told that they must.
  // None: whoever reaches an address is served; beyond this host the server's log says so.
  std::optional<SecurityOptions> security = {};
  // Who may call what (weft/authorization.h); it outlives the server. Null: who is connected may
  // call everything. Refusals are in the log, at level warning; with `log_allowed_calls` the first
  // call that each client may make of each method as well, at level info.
  Authorizer* authorizer = nullptr;
  bool log_allowed_calls = false;
  // How many calls may run at a time: of one client, of one method, and in all, as far as the
  // server can do them. What is more is refused at once. The server's, whatever its engines are.
  ServerLimits limits = {};
  uint64_t max_request_bytes = 64 << 20;  // larger requests fail with RESOURCE_EXHAUSTED
  // Of encoded requests that have not been answered, and of streams' messages that have not been
  // read, of all clients; one client's leave others as much as they have: alone, half. Further
  // ones: RESOURCE_EXHAUSTED. Replies that wait for clients to take them count as well: of
  // all clients half of it, besides one reply of any size; more ends the connection that most of it
  // waits for. Several engines have equal parts, each of 2 * max_request_bytes at least.
  uint64_t max_running_bytes = 1 << 30;
  // Bytes of one connection's encoded replies that wait for earlier ones to be taken, besides a
  // single reply of any size: at least 64 KiB. More end it. Higher: clients may ask for more at a
  // time and take it slowly; more memory for those that take nothing.
  uint64_t max_unsent_reply_bytes = 256 << 20;
  // So long, in microseconds, replies may wait for a client without one of them leaving: 100 ms to
  // 1 h; 0: for ever. Then its connection ends. Higher: clients that nobody drives for a while keep
  // theirs; memory is held for longer for those that take nothing.
  uint64_t reply_timeout_us = 30'000'000;
  // For calls that run exactly once (RetryOptions::exactly_once): what is remembered of them.
  // Sessions of clients, of 1 KiB each. One client opens 8 of them at a time on a connection, and
  // with `tenant_of` one tenant half. 0: no calls run exactly once here.
  uint32_t max_sessions = 65536;
  // A session ends when its client was not heard of for so long, in microseconds: 1 s to 1 h.
  // Higher: a client that was cut off for longer still learns what became of its calls; more memory
  // for clients that are gone.
  uint64_t session_lease_us = 60'000'000;
  // Replies whose clients may not have them, and 1 KiB for each such call, of all clients; half for
  // one session. One client leaves an eighth to others; with `tenant_of` one tenant has half.
  // Further calls: RESOURCE_EXHAUSTED, "not run"; the replies of those that run still have room.
  uint64_t max_record_bytes = 64 << 20;
  // Keeps outcomes across restarts (weft/service.h), outlives this. Null: kept while this runs.
  CompletionStore* completion_store = nullptr;
  // A socket's absolute path; max_sessions is 0. docs/guide.md, "Upgrade without a refused call".
  std::string handover_path = {};
  std::function<void()> on_handed_over = {};  // Shutdown() is due: it serves; not inside of this
  uint32_t max_connections = 1024;      // ListenOptions::max_connections, of all engines together
  uint32_t max_connections_of_one = 0;  // of one client; 0: all but an eighth (ListenOptions)
  LinkOptions link = {};                // paths and resources of each connection
  // Whose handles a client may use (docs/remote_memory.md), and a peer, whoever has dialed:
  // called on the engine for each connection, before its first request. Null: kDefaultTenant.
  std::function<uint32_t(const PathInfo&)> tenant_of = {};
  // Performance.
  uint32_t max_outstanding_calls = 256;  // 1..kMaxOutstandingCalls, for each connection, and as
                                         // many one-way messages beside them. Higher: more memory
                                         // per connection (an arena for each in use)
  uint32_t max_streams = 16384;          // 0..kMaxStreams at once, for each connection
  // ChannelOptions', for what clients send.
  uint32_t stream_window_messages = 1024;
  uint32_t stream_window_bytes = 64 << 10;
  BufferPoolOptions buffers = {};  // of AllocateBuffer()
  // The server's own engines only: EngineOptions.
  Log* log = nullptr;
  uint64_t spin_ns = kDefaultSpinNs;
  int cpu = -1;  // EngineOptions::cpu, where there is one engine; of several: `cpus`
  // Engines of its own, each with its thread: 1 to kMaxEngines. They serve the same address,
  // on one socket that listens; each connection is the engine's that has the fewest when it comes.
  // Nothing is shared on a call's way, but by `limits`. Higher: more calls in a second where there
  // are processors for them, and memory: their networks have bounds of their own. With more than
  // one there are no peers (peer_id) and no calls that run exactly once (max_sessions has to be 0),
  // and handlers run at the same time (Threads, above).
  uint32_t engines = 1;
  std::vector<int> cpus = {};         // of each; empty: the kernel's choice. Not beside `cpu`
  uint64_t rebalance_us = 1'000'000;  // how often uneven engines give clients up. Never: 0, or if
                                      // max_connections_of_one is neither 0 nor max_connections
};

struct ServerStats {
  // That arrived: calls, each attempt of one, streams and one-way messages.
  uint64_t requests = 0;
  uint64_t replies_ok = 0;
  uint64_t replies_failed = 0;  // handlers' errors and refusals
  uint64_t refused = 0;  // among them, by the server, not by an executor: expired, too large,
                         // undecodable, unknown, no room, shutting down, denied, over a limit
  uint64_t one_way = 0;  // among requests: messages without a reply
  uint64_t one_way_failed = 0;  // among them: handlers' errors, which nobody is told
  // Among them: no handler ran. As `refused`, by an executor, or max_outstanding_calls are running.
  uint64_t one_way_dropped = 0;
  // Calls, attempts, streams and one-way messages that their clients may not make (`authorizer`).
  uint64_t denied = 0;
  // The same that were over a limit (`limits`), by which; and the adaptive one now, 0: none.
  uint64_t refused_by_client_limit = 0;
  uint64_t refused_by_method_limit = 0;
  uint64_t refused_by_adaptive_limit = 0;
  uint32_t adaptive_limit = 0;
  uint64_t protocol_errors = 0;     // connections closed because of malformed frames
  uint32_t connections = 0;         // now
  uint32_t running = 0;             // calls now
  uint64_t running_bytes = 0;       // their requests, streams' unread messages, unsent replies
  uint64_t unsent_reply_bytes = 0;  // the last of these: replies that wait to be sent
  uint64_t slow_readers = 0;        // connections closed because their clients took no replies
  uint64_t told_idle = 0;           // times a client was asked to leave (limits.idle_timeout_us)
  uint32_t peers = 0;               // with an open connection, now
  uint64_t repeated = 0;      // attempts answered from the record of one that ran exactly once
  uint64_t record_bytes = 0;  // now: as max_record_bytes counts them
  uint32_t sessions = 0;      // now
  uint32_t registered = 0;    // keys of Register() that etcd has, now; not of one engine
};

class Server {
 public:
  // With engine threads and a network of its own. INVALID_ARGUMENT: options that are out of bounds,
  // or do not go together, by name.
  static absl::StatusOr<std::unique_ptr<Server>> Create(const ServerOptions& options = {});
  // On `engine`, which somebody drives. INVALID_ARGUMENT: as above, or `engines` is not 1.
  static absl::StatusOr<std::unique_ptr<Server>> Create(Engine& engine,
                                                        const ServerOptions& options = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Adds a service; `executor` overrides the server's. Before the first Listen() or OpenPeer().
  // ALREADY_EXISTS: one of that name is there. FAILED_PRECONDITION: already listening.
  absl::Status AddService(Service* service, Executor* executor = nullptr);

  // Serves at `address` (docs/paths.md, "Addresses"; port 0: any free one) when this is OK. May
  // be called again for further addresses. With handover_path it takes the socket of the process
  // that serves, if one does, and then serves nobody before Ready(). FAILED_PRECONDITION: that one
  // hands over to another process. PERMISSION_DENIED: it is another user's.
  absl::Status Listen(const std::string& address);

  // After the last Listen(), with handover_path: the process that has served stops accepting, and
  // sends its clients here; the next one can take over. Blocks, for seconds at most. Errors: the
  // other process does not do its part, and serves on; or nobody can listen at the path.
  absl::Status Ready();
  // The first address that it listens at: the host as it was given to Listen(), and the port in
  // use, also when 0 was asked for. Clients dial it as it stands, but for 0.0.0.0 and [::], which
  // mean every interface: clients need the address of one, or a name. Empty before Listen().
  std::string address() const;

  // A channel to another server (weft/channel.h). Both servers use one connection for their calls
  // to each other, whichever has dialed. It is made at once, and made again by either side after a
  // loss, with the channel's back-off, as long as one of the two has a channel. The channel is on
  // this server's engine, and never waits: connect_at_once means nothing, and Channel::WatchState()
  // tells when the peer is there. `address`: where it listens; empty: this side does not dial it,
  // and waits. A peer that this server has not opened is served as well.
  //
  // Destroying the channel ends this side's calls; the connection stays for those of the peer,
  // unless calls of this side had lent it memory, and the next channel to this peer uses it again.
  // REQUIRES: the channel is destroyed before the server. Shutdown() lets what was sent end within
  // the grace, calls and operations on the peer's memory; what waits for the peer is not waited
  // for. With ChannelOptions::security the peer proves who it is, also where it has dialed: its
  // certificate has the expected_uri, and the server_name among its DNS names; one of them is set.
  // While a peer is connected that has proved its names by TLS, its id is refused to all with other
  // names: a peer whose certificate's names change has to end its old connection first.
  //
  // After all AddService(). INVALID_ARGUMENT: an id that is none, or is this server's; security
  // that names nobody, or has a numeric address as server_name. ALREADY_EXISTS: there is a channel
  // to that peer. FAILED_PRECONDITION: no peer_id, or shut down.
  // RESOURCE_EXHAUSTED: the names of the services have no room in a hello.
  absl::StatusOr<std::unique_ptr<Channel>> OpenPeer(const std::string& peer_id,
                                                    const std::string& address,
                                                    const ChannelOptions& options);

  // Lets channels to `target`, "etcd:HOST:PORT/PREFIX", find this server: see RegistrationOptions.
  absl::Status Register(const std::string& target, const RegistrationOptions& options = {});

  // Blocks until Shutdown(). Drives the engine meanwhile if this thread may.
  void Wait();

  // Takes back what Register() has put, for which it waits a second at most. Stops listening, tells
  // all clients to leave, and refuses new requests (UNAVAILABLE: "not run, safe to retry"). Calls
  // and streams that run go on, for up to `grace_us`; a client closes its connection when it has
  // the replies to all of its calls, large ones included, and its operations on this server's
  // memory have ended. (Leases keep no connection.) Then, or when the grace is over, closes all
  // connections that are left: handlers that still run, and streams that do not end, find their
  // context cancelled. Returns when the last handler has ended. Drives the engine meanwhile if this
  // thread may; else somebody has to (kExternal: the loop goes on until it returns). Idempotent.
  //
  // With `grace_us` == 0 nobody is told, and replies that a client has not received may be lost.
  // Clients whose engine nobody drives do not leave: a shutdown ends without them when nothing was
  // under way for 100 ms. A call that such a client makes later fails as "not run".
  // After on_handed_over, calls run for up to half of the grace, in which clients move.
  void Shutdown(uint64_t grace_us);

  // Memory for bulk data out of the server's pool, good for all its clients; it goes before the
  // server. With several engines no other memory is (Buffer::Of() is one engine's), and the pool
  // unmaps nothing. RESOURCE_EXHAUSTED: the pool's bound.
  absl::StatusOr<std::unique_ptr<Buffer>> AllocateBuffer(size_t bytes);

  // `bytes` zeros that clients may use in place, each with a handle (ExportedMemory::Allocate()
  // says what they are made of). Clients on this host map them. They go before the server does.
  // With several engines: on all of them, and not from a handler that runs on one
  // (FAILED_PRECONDITION).
  absl::StatusOr<std::unique_ptr<ExportedMemory>> AllocateExport(
      size_t bytes, const ExportOptions& options,
      const MappedMemoryOptions& memory = {.source = MappedMemoryOptions::Source::kMemfd});
  // The same for memory that there is already, which stays until the export is gone. Over shared
  // memory each operation of a client is then a system call instead of a copy, some 50 times as
  // long for 64 bytes (docs/performance.md), unless the memory is a kMemfd
  // (MappedMemoryOptions::Source) or a Buffer's; the log says so, at level info.
  absl::StatusOr<std::unique_ptr<ExportedMemory>> Export(MutableByteSpan memory,
                                                         const ExportOptions& options);

  // Of all engines; from handlers too, where the others' may be of the middle of a call.
  ServerStats stats();
  // The same of each engine: how evenly the clients are spread.
  std::vector<ServerStats> stats_by_engine();

  // One of ServerOptions::engines, where handlers run that have no executor; its counters are what
  // it does. REQUIRES: number < engines.
  Engine& engine(size_t number = 0);

 private:
  using Engines = std::vector<std::unique_ptr<Engine>>;
  using Cores = std::vector<std::unique_ptr<ServerCore>>;  // [engine's number], at least one

  Server(Engines own_engines, Cores cores);
  static absl::Status Check(const ServerOptions& options);
  static std::unique_ptr<Server> Make(Engines own_engines, const ServerOptions& options);
  bool InTurn() const;
  const Engines own_engines_;  // none: the application's
  const std::unique_ptr<BufferPool> buffers_;
  Cores cores_;
  std::unique_ptr<Registrations> registrations_;  // end in Shutdown()
  std::unique_ptr<Handover> handover_;            // goes first; null: no handover_path
};

}  // namespace weft
