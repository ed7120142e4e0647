#include "rpc/server/server_core.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "core/fork_guard.h"
#include "core/log.h"
#include "core/random.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/status_text.h"
#include "transport/connection_quota.h"

namespace weft {
namespace {

// Connections for each of max_connections, on one engine: one that is open, and one that has closed
// and whose calls still run. Higher: clients that connect again while handlers are slow are refused
// later, and hostile ones make a server keep more.
constexpr uint32_t kConnectionsForPlace = 2;

// Descriptors that this process has now; 0: it cannot be told.
uint64_t OpenDescriptors() {
  DIR* const folder = ::opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  uint64_t names = 0;
  while (::readdir(folder) != nullptr) ++names;
  ::closedir(folder);
  return names - std::min(names, uint64_t{3});  // ".", "..", and the one by which they are counted
}

}  // namespace

ServerCore::ServerCore(EngineCore& engine, const ServerOptions& options,
                       std::shared_ptr<CommonLimits> common)
    : engine_(engine),
      options_(options),
      common_limits_(std::move(common)),
      admission_(Admission::Make(options_.limits, engine.clock(), stats_, common_limits_.get())),
      // Not 0, which is none.
      peers_(*this, engine, options.peer_id, SecureRandom64() | 1) {}

ServerCore::~ServerCore() { Shutdown(0); }

// --- setup --------------------------------------------------------------------------------------

absl::Status ServerCore::AddService(Service* service, Executor* executor) {
  if (engine_.forked()) return EngineCore::ForkedError();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!address_.empty()) {
    return absl::FailedPreconditionError(StrCat("service ", service->weft_descriptor().full_name,
                                                " comes too late: the server listens at ", address_,
                                                " already, and clients know its methods"));
  }
  if (has_peers_) {
    return absl::FailedPreconditionError(StrCat("service ", service->weft_descriptor().full_name,
                                                " comes too late: a channel to a peer is open, "
                                                "which knows the server's methods"));
  }
  if (executor == nullptr) executor = options_.executor;
  // Interceptors run on the way through an executor: calls that have neither pay nothing.
  if (executor == nullptr && !options_.interceptors.empty()) executor = &in_place_;
  return methods_.Add(service, executor);
}

rpc::ServerHello ServerCore::MakeHello() const {
  rpc::ServerHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(options_.max_outstanding_calls);
  hello.set_control_calls(kControlCalls);
  hello.set_max_request_bytes(options_.max_request_bytes);
  hello.set_name(options_.name);
  hello.set_max_windows(kMaxWindows);
  hello.set_max_extras_bytes(kMaxExtrasBytes);
  hello.set_takes_attachments(true);
  hello.set_max_streams(options_.max_streams);
  hello.set_stream_window_messages(options_.stream_window_messages);
  hello.set_stream_window_bytes(options_.stream_window_bytes);
  if (!options_.peer_id.empty()) {
    hello.set_peer_id(options_.peer_id);
    hello.set_incarnation(peers_.incarnation());
  }
  if (options_.max_sessions > 0) hello.set_session_lease_us(options_.session_lease_us);
  methods_.Describe(&hello);
  return hello;
}

absl::Status ServerCore::CheckClientHello(const rpc::ClientHello& hello) {
  if (hello.protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the client speaks version ", hello.protocol(),
                                                " of the call protocol, this server version ",
                                                kRpcProtocolVersion));
  }
  if (hello.max_outstanding_calls() == 0) {
    return absl::FailedPreconditionError("the client's hello makes no sense: it wants no calls");
  }
  return absl::OkStatus();
}

absl::Status ServerCore::CheckHello() const {
  // A hello to a peer has this one in it, beside a ClientHello (some 60 bytes), two ids
  // (kMaxPeerIdBytes each) and their tags.
  constexpr size_t kPeerBytes = 1024;
  const size_t most = kMaxHelloBytes - (options_.peer_id.empty() ? 0 : kPeerBytes);
  const size_t bytes = MakeHello().ByteSizeLong();
  if (bytes <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(StrCat("the names of this server's ", methods_.size(),
                                             " methods take ", bytes,
                                             " bytes; a hello has room for ", most));
}

// On the engine, where calls look at what it sets.
absl::Status ServerCore::BindLimits() {
  return admission_ == nullptr ? absl::OkStatus() : admission_->Bind(methods_);
}

std::shared_ptr<uint64_t> ServerCore::HeldBytesOf(uint64_t client) {
  // Those that this side has dialed are many: each is one for itself.
  if (client == 0) return std::make_shared<uint64_t>(0);
  std::weak_ptr<uint64_t>& kept = held_bytes_[client];
  std::shared_ptr<uint64_t> bytes = kept.lock();
  if (bytes == nullptr) {
    bytes.reset(new uint64_t(0), [this, client](uint64_t* last) {
      held_bytes_.erase(client);
      delete last;
    });
    kept = bytes;
  }
  return bytes;
}

absl::Status ServerCore::Charge(size_t bytes, uint64_t& of_client) {
  if (!MayHold(bytes, of_client)) {
    return RunningBytesError(of_client);
  }
  Hold(bytes, of_client);
  return absl::OkStatus();
}

void ServerCore::EndSlowest() {
  while (stats_.unsent_reply_bytes > options_.max_running_bytes / 2) {
    // As in HeldBytesOf(), whom this side has dialed is one for itself.
    absl::flat_hash_map<uint64_t, uint64_t> of_client;  // waiting bytes
    for (ServerConnection& one : connections_) of_client[one.path().client] += one.unsent_bytes();
    const auto waiting = [&of_client](const ServerConnection& one) {
      const uint64_t client = one.path().client;
      return std::pair(client == 0 ? one.unsent_bytes() : of_client[client], one.unsent_bytes());
    };
    ServerConnection* slowest = nullptr;
    for (ServerConnection& one : connections_) {
      if (slowest == nullptr || waiting(one) > waiting(*slowest)) slowest = &one;
    }
    // As on a connection, a single reply of any size may wait: the others have the half.
    if (slowest->waiting_replies() == 1 &&
        stats_.unsent_reply_bytes - slowest->unsent_bytes() <= options_.max_running_bytes / 2) {
      return;
    }
    slowest->EndSlowReader(StrCat(stats_.unsent_reply_bytes.value(),
                                  " bytes of replies wait for clients to take them, more than ",
                                  "half of ServerOptions::max_running_bytes",
                                  options_.engines > 1 ? " for each engine" : "",
                                  ", and most of them for this one"));
  }
}

absl::Status ServerCore::RunningBytesError(uint64_t of_client) const {
  return NotRunError(absl::StatusCode::kResourceExhausted,
                     StrCat("requests and replies of ", stats_.running_bytes.value(),
                            " bytes are running; this server takes ", options_.max_running_bytes,
                            options_.engines > 1 ? " on each engine" : "",
                            " at most, and of this client, which has ", of_client,
                            ", no more than is left to others (not run, safe to retry)"));
}

absl::Status ServerCore::RequestTooLargeError(size_t bytes) const {
  return NotRunError(absl::StatusCode::kResourceExhausted,
                     StrCat("the request has ", bytes, " bytes; this server takes at most ",
                            options_.max_request_bytes, " (not run)"));
}

absl::StatusOr<std::shared_ptr<SharedListener>> ServerCore::Listen(const std::string& address,
                                                                   int socket) {
  return AddListener(address, socket, [&](const ListenOptions& options) {
    return engine_.transport().Listen(address, options, this);
  });
}

absl::Status ServerCore::JoinListener(const std::shared_ptr<SharedListener>& shared) {
  return AddListener(/*asked=*/"", /*socket=*/-1,
                     [&](const ListenOptions& options) {
                       return engine_.transport().JoinListener(shared, options, this);
                     })
      .status();
}

template <class Open>
absl::StatusOr<std::shared_ptr<SharedListener>> ServerCore::AddListener(const std::string& asked,
                                                                        int socket, Open open) {
  if (engine_.forked()) return EngineCore::ForkedError();
  WEFT_RETURN_IF_ERROR(CheckHello());
  ListenOptions listen;
  listen.link = options_.link;
  listen.hello = MakeHello().SerializeAsString();
  listen.max_connections = options_.max_connections;
  listen.max_connections_of_one = options_.max_connections_of_one;
  listen.security = options_.security;
  listen.socket = socket;
  listen.engines = options_.engines;
  absl::StatusOr<std::shared_ptr<SharedListener>> shared;
  RunOnEngine(engine_, [&] {
    if (draining() || moved_) {
      shared = absl::FailedPreconditionError("the server has been shut down");
      return;
    }
    if (absl::Status bound = BindLimits(); !bound.ok()) {
      shared = std::move(bound);
      return;
    }
    absl::StatusOr<std::unique_ptr<Listener>> listener = open(listen);
    if (!listener.ok()) {
      shared = listener.status();
      return;
    }
    shared = (*listener)->shared();
    records_.Restore();
    if (!asked.empty() && (*listener)->is_beyond_host() && !options_.security.has_value() &&
        !std::exchange(told_of_no_security_, true)) {
      WEFT_LOG(kWarning, "the server at ", (*listener)->address(),
               " has no security: it serves whoever reaches it, and what travels can be read and "
               "changed on the way. Set ServerOptions::security (weft/security.h), or listen at "
               "127.0.0.1 or a Unix socket");
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (address_.empty()) address_ = (*listener)->address();
    if (listeners_.empty()) StartToLookForIdle();
    listeners_.push_back({asked, *std::move(listener)});
    if (!asked.empty()) LookAtDescriptors();
  });
  return shared;
}

void ServerCore::LookAtDescriptors() {
  uint64_t wanted = 0;
  for (const Listening& listening : listeners_) wanted += listening.listener->descriptors_wanted();
  rlimit limit = {};
  if (wanted == 0 || told_of_few_descriptors_ || ::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  wanted += OpenDescriptors();
  if (limit.rlim_cur >= wanted) return;  // RLIM_INFINITY is the largest number
  told_of_few_descriptors_ = true;
  const size_t addresses = listeners_.size();
  const std::string line = StrCat(
      "the server at ", listeners_.back().listener->address(), " takes ", options_.max_connections,
      " connections (ServerOptions::max_connections)",
      addresses == 1 ? "" : StrCat(" at each of ", addresses, " addresses"),
      ", for which this process may need ", wanted, " descriptors; it may have ",
      uint64_t{limit.rlim_cur},
      " (RLIMIT_NOFILE), and accepts nobody when these are used. Raise the limit (ulimit -n ",
      wanted, ", or LimitNOFILE=", wanted, " in a systemd unit), or lower max_connections");
  // Most servers with the default never have so many clients.
  if (options_.max_connections == ServerOptions().max_connections) {
    WEFT_LOG(kInfo, line);
  } else {
    WEFT_LOG(kWarning, line);
  }
}

void ServerCore::StopNewestListener() {
  RunOnEngine(engine_, [&] {
    if (listeners_.empty()) return;  // shut down meanwhile
    listeners_.pop_back();
    const std::lock_guard<std::mutex> lock(mutex_);
    if (listeners_.empty()) address_.clear();
  });
}

// --- another process ----------------------------------------------------------------------------

Descriptor ServerCore::ListeningSocket(const std::string& asked) {
  Descriptor copy;
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) {
      if (listening.asked != asked || listening.listener->socket() < 0) continue;
      copy.Reset(::fcntl(listening.listener->socket(), F_DUPFD_CLOEXEC, 0));
      OwnDescriptor(copy.get());
    }
  });
  return copy;
}

void ServerCore::HoldClients() {
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) listening.listener->HoldClients();
  });
}

bool ServerCore::HasHandshakes() {
  bool some = false;
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) some |= listening.listener->has_handshakes();
  });
  return some;
}

std::vector<std::pair<std::string, Descriptor>> ServerCore::StopAccepting() {
  std::vector<std::pair<std::string, Descriptor>> held;
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) {
      for (Descriptor& client : listening.listener->StopAccepting()) {
        held.emplace_back(listening.asked, std::move(client));
      }
    }
  });
  return held;
}

void ServerCore::TakeClient(const std::string& asked, Descriptor client) {
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) {
      if (listening.asked == asked) return listening.listener->TakeClient(std::move(client));
    }
  });
}

absl::Status ServerCore::ResumeAccepting() {
  absl::Status status;
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) status.Update(listening.listener->Resume());
  });
  return status;
}

void ServerCore::LeaveAddresses() {
  RunOnEngine(engine_, [&] {
    for (const Listening& listening : listeners_) listening.listener->LeaveAddress();
  });
}

void ServerCore::MoveAway() {
  LeaveAddresses();
  RunOnEngine(engine_, [&] {
    if (draining()) return;  // shut down meanwhile
    moved_ = true;
    rebalance_.Stop();
    listeners_.clear();
    for (ServerConnection& connection : connections_) connection.SendMoved();
  });
}

// --- several engines ----------------------------------------------------------------------------

void ServerCore::StartRebalance(std::vector<ServerCore*> all) {
  RunOnEngine(engine_, [&] {
    if (!draining() && !moved_) rebalance_.Start(std::move(all));
  });
}

uint32_t ServerCore::LookForLeaving(uint32_t patience) {
  uint32_t leaving = 0;
  for (ServerConnection& one : connections_) leaving += one.LookIsLeaving(patience) ? 1 : 0;
  return leaving;
}

uint32_t ServerCore::MoveConnections(uint32_t most) {
  uint32_t asked = 0;
  for (ServerConnection& connection : connections_) {
    if (asked == most) break;
    if (!connection.MayMove()) continue;
    connection.SendMoved();
    ++asked;
  }
  return asked;
}

std::string ServerCore::address() const {
  if (engine_.forked()) return "";  // nobody listens in this process
  const std::lock_guard<std::mutex> lock(mutex_);
  return address_;
}

absl::StatusOr<PeerSession*> ServerCore::ReservePeer(const std::string& id,
                                                     const std::string& address) {
  if (engine_.forked()) return EngineCore::ForkedError();
  WEFT_RETURN_IF_ERROR(CheckHello());
  absl::StatusOr<PeerSession*> session;
  RunOnEngine(engine_, [&] {
    if (draining()) {
      session = absl::FailedPreconditionError("the server has been shut down");
      return;
    }
    if (absl::Status bound = BindLimits(); !bound.ok()) {
      session = std::move(bound);
      return;
    }
    records_.Restore();  // peers may be clients with sessions from before a restart
    session = peers_.Reserve(id, address);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (session.ok()) has_peers_ = true;
  });
  return session;
}

void ServerCore::UnreservePeer(PeerSession& session) {
  RunOnEngine(engine_, [&] { peers_.Unreserve(session); });
}

void ServerCore::AddStats(bool waits, ServerStats* sum) {
  if (!waits) return stats_.AddTo(sum);
  RunOnEngine(engine_, [&] {
    stats_.peers = peers_.open();
    stats_.AddTo(sum);
  });
}

// --- connections and calls ----------------------------------------------------------------------

absl::StatusOr<ConnectionHandler*> ServerCore::OnIncoming(Connection& connection) {
  if (draining()) return absl::UnavailableError("the server is shutting down");
  // Who closes a connection has its place back, and what it has left behind runs on. (No engine
  // ever has so many connections that the products were too large.)
  if (stats_.connections >= options_.max_connections) {
    ListenOptions places;
    places.max_connections = kConnectionsForPlace * options_.max_connections;
    places.max_connections_of_one = kConnectionsForPlace * options_.max_connections_of_one;
    WEFT_RETURN_IF_ERROR(Annotate(CheckRoomForClient(places, shares_, connection.path().client),
                                  "with those that have closed and whose calls still run, for "
                                  "which both numbers are doubled"));
  }
  rpc::ClientHello hello;  // one that cannot be decoded is refused when it is open
  if (hello.ParseFromString(connection.peer_hello()) && hello.has_peer()) {
    WEFT_RETURN_IF_ERROR(CheckClientHello(hello));
    return peers_.OnIncoming(connection, hello.peer());
  }
  return MakeServing(connection, /*peer=*/nullptr);
}

ConnectionHandler* ServerCore::MakeServing(Connection& connection,
                                           std::shared_ptr<ServedPeer> peer) {
  auto* client = new ServerConnection(*this, connection, std::move(peer));
  connections_.PushBack(client);
  shares_.Take(client->path().client, 1);
  ++stats_.connections;
  return client;
}

// Halves that serve are all made here.
void ServerCore::BeginServing(ConnectionHandler& serving, Connection& connection,
                              std::string_view client_hello) {
  static_cast<ServerConnection&>(serving).Begin(connection, client_hello);
}

void ServerCore::EndServing(ConnectionHandler& serving, Connection& connection) {
  static_cast<ServerConnection&>(serving).CancelAll();
  serving.OnClosed(connection, absl::CancelledError("the peer makes no more calls"));
  if (draining()) LookForTheEnd();
}

void ServerCore::OnPeerConnectionGone() {
  if (draining()) LookForTheEnd();
}

void ServerCore::Retire(ServerConnection* connection) {
  const std::shared_ptr<ServedPeer> peer = connection->peer();
  shares_.Give(connection->path().client, 1);
  delete connection;  // leaves the list
  --stats_.connections;
  calls_.Trim(stats_.running());
  if (peer != nullptr) peer->OnHalfGone();
  if (state_ == State::kMovesClients) return LookForMoved();
  if (draining()) LookForTheEnd();
}

void ServerCore::FinishElsewhere(ServerCall* call) {
  if (!finished_.Push(call)) return;
  // Where this thread drives the engine too, nobody else makes room.
  PostOrDrive(engine_, [this] {
    finished_.TakeAll([](ServerCall* finished) { finished->CompleteHandedOver(); });
  });
}

void ServerCore::CheckInvariants() {
  for (ServerConnection& connection : connections_) connection.CheckInvariants();
  records_.CheckInvariants();
}

// --- the end ------------------------------------------------------------------------------------

void ServerCore::Shutdown(uint64_t grace_us) {
  WEFT_CHECK(!engine_.InTurn());  // User: blocks, so not inside a callback
  const std::lock_guard<std::mutex> lock(shutdown_mutex_);
  if (shut_down_) return;
  StartShutdown(grace_us);
  engine_.Wait(stopped_);
  shut_down_ = true;
}

void ServerCore::StartShutdown(uint64_t grace_us) {
  WEFT_CHECK(!engine_.InTurn());  // User: Shutdown() blocks, so not inside a callback
  if (started_shutdown_.exchange(true)) return;
  // It finishes stopped_ when nothing of this is needed any more, for which Shutdown() waits.
  PostOrDrive(engine_, [this, grace_us] { BeginShutdown(grace_us); });
}

void ServerCore::BeginShutdown(uint64_t grace_us) {
  const uint64_t now_ns = engine_.clock().NowNs();
  grace_end_ns_ = LaterByUs(now_ns, grace_us);
  if (!moved_ || grace_us == 0) return BeginToDrain();
  state_ = State::kMovesClients;
  moves_end_ns_ = now_ns + (grace_end_ns_ - now_ns) / 2;
  LookForMoved();
}

// Clients that are told to leave have time for it, and their calls run until then.
void ServerCore::LookForMoved() {
  const uint64_t now_ns = engine_.clock().NowNs();
  const bool some = std::any_of(connections_.begin(), connections_.end(),
                                [](ServerConnection& one) { return one.AwaitsMove(); });
  if (some && now_ns < moves_end_ns_) return engine_.timers().Schedule(this, moves_end_ns_);
  BeginToDrain();
}

void ServerCore::BeginToDrain() {
  state_ = State::kDraining;
  engine_.timers().Cancel(this);
  rebalance_.Stop();
  methods_.Close();
  listeners_.clear();
  peers_.Stop();
  quiet_since_ns_ = engine_.clock().NowNs();
  if (quiet_since_ns_ >= grace_end_ns_) return CloseConnections();
  for (ServerConnection& connection : connections_) connection.SendGoaway();
  LookForTheEnd();
}

void ServerCore::OnTimer() {
  if (state_ == State::kServing) return LookForIdle();
  if (state_ == State::kMovesClients) return LookForMoved();
  if (engine_.clock().NowNs() >= grace_end_ns_) return CloseConnections();
  LookForTheEnd();
}

void ServerCore::StartToLookForIdle() {
  const uint64_t timeout_us = options_.limits.idle_timeout_us;
  if (timeout_us != 0) ScheduleIn(engine_, *this, timeout_us / LeaveNotices::kLooksInIdleTimeout);
}

void ServerCore::LookForIdle() {
  if (moved_) return;  // all leave
  for (ServerConnection& connection : connections_) stats_.told_idle += connection.LookIsIdle();
  StartToLookForIdle();
}

void ServerCore::CloseConnections() {
  state_ = State::kClosing;
  HoldEnd();
  records_.CancelDetached();
  for (ServerConnection& connection : connections_) connection.Close("the server is shutting down");
  peers_.CloseAll("the server is shutting down");
  LetEnd();
}

void ServerCore::OnCallEndedDraining() {
  quiet_since_ns_ = engine_.clock().NowNs();
  LookForTheEnd();
}

// No call runs: whether there is a client to be waited for, or a call to a peer.
bool ServerCore::SomeoneIsComing(uint64_t now_ns) {
  if (peers_.has_calls()) return true;
  for (const ServerConnection& connection : connections_) {
    if (!connection.IsMoving()) continue;
    quiet_since_ns_ = now_ns;
    return true;
  }
  const bool quiet = now_ns >= quiet_since_ns_ + kQuietNs;
  for (const ServerConnection& connection : connections_) {
    if (connection.AwaitsClose(quiet)) return true;
  }
  return false;
}

// The last steps of a shutdown, each when nothing holds it up any more.
void ServerCore::LookForTheEnd() {
  if (!closing()) {
    const uint64_t now_ns = engine_.clock().NowNs();
    const bool calls_run = stats_.running() > 0;
    if (!calls_run && !SomeoneIsComing(now_ns)) return CloseConnections();
    const uint64_t look_ns = calls_run ? grace_end_ns_ : now_ns + kLookNs;
    return engine_.timers().Schedule(this, std::min(look_ns, grace_end_ns_));
  }
  if (holds_ > 0 || !connections_.empty() || peers_.connections() > 0) return;
  engine_.timers().Cancel(this);
  records_.Stop();
  engine_.Finish(stopped_);  // this may be gone now
}

}  // namespace weft
