#include "rpc/server/server_core.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "rpc/operation/on_engine.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"

namespace weft {

ServerCore::ServerCore(EngineCore& engine, const ServerOptions& options)
    : engine_(engine), options_(options) {}

ServerCore::~ServerCore() { Shutdown(0); }

// --- setup --------------------------------------------------------------------------------------

absl::Status ServerCore::AddService(Service* service, Executor* executor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!address_.empty()) {
    return absl::FailedPreconditionError(StrCat("service ", service->weft_descriptor().full_name,
                                                " comes too late: the server listens at ", address_,
                                                " already, and clients know its methods"));
  }
  if (executor == nullptr) executor = options_.executor;
  // Interceptors run on the way through an executor: calls that have neither pay nothing.
  if (executor == nullptr && !options_.interceptors.empty()) executor = &in_place_;
  return methods_.Add(service, executor);
}

ListenOptions ServerCore::MakeListenOptions() const {
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
  methods_.Describe(&hello);
  ListenOptions listen;
  listen.link = options_.link;
  listen.hello = hello.SerializeAsString();
  listen.max_connections = options_.max_connections;
  return listen;
}

absl::Status ServerCore::Listen(const std::string& address) {
  const ListenOptions listen = MakeListenOptions();
  if (listen.hello.size() > kMaxHelloBytes) {
    return absl::ResourceExhaustedError(StrCat("the names of this server's ", methods_.size(),
                                               " methods take ", listen.hello.size(),
                                               " bytes; a hello has room for ", kMaxHelloBytes));
  }
  absl::Status status;
  RunOnEngine(engine_, [&] {
    if (draining_) {
      status = absl::FailedPreconditionError("the server has been shut down");
      return;
    }
    absl::StatusOr<std::unique_ptr<Listener>> listener =
        engine_.transport().Listen(address, listen, this);
    status = listener.status();
    if (!listener.ok()) return;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (address_.empty()) address_ = (*listener)->address();
    listeners_.push_back(*std::move(listener));
  });
  return status;
}

std::string ServerCore::address() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return address_;
}

ServerStats ServerCore::ReadStats() {
  ServerStats stats;
  RunOnEngine(engine_, [&] {
    stats = stats_;
    stats.running = running();
  });
  return stats;
}

// --- connections and calls ----------------------------------------------------------------------

absl::StatusOr<ConnectionHandler*> ServerCore::OnIncoming(Connection& connection) {
  if (draining_) return absl::UnavailableError("the server is shutting down");
  auto* client = new ServerConnection(*this, connection);
  connections_.PushBack(client);
  ++stats_.connections;
  return client;
}

void ServerCore::Retire(ServerConnection* connection) {
  delete connection;  // leaves the list
  --stats_.connections;
  calls_.Trim(running());
  if (draining_) LookForTheEnd();
}

void ServerCore::FinishElsewhere(ServerCall* call) {
  if (!finished_.Push(call)) return;
  PostSurely(engine_, [this] {
    finished_.TakeAll([](ServerCall* finished) { finished->CompleteHandedOver(); });
  });
}

// --- the end ------------------------------------------------------------------------------------

void ServerCore::Shutdown(uint64_t grace_us) {
  WEFT_CHECK(!engine_.InTurn());
  const std::lock_guard<std::mutex> lock(shutdown_mutex_);
  if (shut_down_) return;
  RunOnEngine(engine_, [&] { BeginShutdown(grace_us); });
  engine_.Wait(stopped_);
  shut_down_ = true;
}

void ServerCore::BeginShutdown(uint64_t grace_us) {
  draining_ = true;
  methods_.Close();
  listeners_.clear();
  if (grace_us == 0) return CloseConnections();
  quiet_since_ns_ = engine_.clock().NowNs();
  grace_end_ns_ = quiet_since_ns_ + grace_us * kNsPerUs;
  for (ServerConnection& connection : connections_) connection.SendGoaway();
  LookForTheEnd();
}

void ServerCore::OnTimer() {
  if (engine_.clock().NowNs() >= grace_end_ns_) return CloseConnections();
  LookForTheEnd();
}

void ServerCore::CloseConnections() {
  closing_ = true;
  for (ServerConnection& connection : connections_) connection.Close("the server is shutting down");
  LookForTheEnd();
}

void ServerCore::OnCallEndedLeaving() {
  quiet_since_ns_ = engine_.clock().NowNs();
  LookForTheEnd();
}

// No call runs: whether there is a client to be waited for.
bool ServerCore::SomeoneIsComing(uint64_t now_ns) {
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
  if (!closing_) {
    const uint64_t now_ns = engine_.clock().NowNs();
    const bool calls_run = running() > 0;
    if (!calls_run && !SomeoneIsComing(now_ns)) return CloseConnections();
    const uint64_t look_ns = calls_run ? grace_end_ns_ : now_ns + kLookNs;
    return engine_.timers().Schedule(this, std::min(look_ns, grace_end_ns_));
  }
  if (!connections_.empty()) return;
  engine_.timers().Cancel(this);
  engine_.Finish(stopped_);  // this may be gone now
}

}  // namespace weft
