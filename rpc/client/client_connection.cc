#include "rpc/client/client_connection.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

std::string Hello(const ChannelOptions& options) {
  rpc::ClientHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(options.max_outstanding_calls);
  hello.set_max_reply_bytes(options.max_reply_bytes);
  hello.set_max_windows(kMaxWindows);
  hello.set_max_extras_bytes(kMaxExtrasBytes);
  hello.set_max_streams(options.max_streams);
  hello.set_stream_window_messages(options.stream_window_messages);
  hello.set_stream_window_bytes(options.stream_window_bytes);
  return hello.SerializeAsString();
}

}  // namespace

ClientConnection::ClientConnection(EngineCore& engine, const std::string& address,
                                   const ChannelOptions& options)
    : backoff_(options.min_backoff_us, options.max_backoff_us,
               engine.clock().NowNs() ^ std::hash<std::string>()(address)),
      engine_(engine),
      address_(address),
      options_(options),
      calls_(this, engine_, address_, options_) {}

ClientConnection::~ClientConnection() = default;

// --- connecting ---------------------------------------------------------------------------------

void ClientConnection::Connect(Function<void(absl::Status)> done) {
  on_connected_ = std::move(done);
  if (state_ == State::kOpen) return Report(absl::OkStatus());
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::WantConnection() {
  if (state_ == State::kIdle) return BeginAttempt();
  if (state_ == State::kPausing) wanted_ = true;
}

void ClientConnection::Report(const absl::Status& connected) {
  if (Function<void(absl::Status)> done = std::exchange(on_connected_, nullptr)) done(connected);
}

void ClientConnection::BeginAttempt() {
  state_ = State::kConnecting;
  wanted_ = false;
  close_reason_ = absl::OkStatus();
  ConnectOptions options;
  options.link = options_.link;
  options.hello = Hello(options_);
  absl::StatusOr<Connection*> connection =
      engine_.transport().Connect(address_, options, calls_.handler());
  if (!connection.ok()) return AttemptFailed(connection.status());
  connection_ = *connection;
}

void ClientConnection::OnOpen(Connection& connection) {
  explanation_ = ExplainPaths(connection.candidates());
  if (state_ != State::kConnecting) return;
  if (absl::Status agreed = OpenCalls(connection); !agreed.ok()) {
    connection.Close(ToStd(agreed.message()));
    close_reason_ = std::move(agreed);
    return;
  }
  state_ = State::kOpen;
  ++connects_;
  Report(absl::OkStatus());
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnected(connection);
  calls_.Pump();
}

absl::Status ClientConnection::OpenCalls(Connection& connection) {
  rpc::ServerHello hello;
  if (!hello.ParseFromString(connection.peer_hello())) {
    return absl::FailedPreconditionError(
        "what listens there is not a Weft server: its hello "
        "cannot be decoded");
  }
  if (hello.protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the server speaks version ", hello.protocol(),
                                                " of the call protocol, this client version ",
                                                kRpcProtocolVersion));
  }
  return calls_.Open(connection, hello);
}

void ClientConnection::OnWritable() {
  if (state_ != State::kOpen) return;
  for (ConnectionWatcher& watcher : watchers_) watcher.OnRoom();
  calls_.Pump();
}

void ClientConnection::OnClosed(Connection& connection, const absl::Status& why) {
  connection_ = nullptr;
  if (state_ == State::kEnded) {
    calls_.ReclaimAll(connection);
    delete this;
    return;
  }
  if (!connection.candidates().empty()) explanation_ = ExplainPaths(connection.candidates());
  const absl::Status reason = close_reason_.ok() ? why : close_reason_;
  if (state_ == State::kConnecting) return AttemptFailed(reason);

  last_failure_ = reason;
  // A server that drops connections before it ever answers is no better than none.
  if (calls_.answered()) backoff_.OnAnswer();
  backoff_.OnFailure();
  if (backoff_.failures() > 1) {
    Pause();
  } else {
    state_ = State::kIdle;
  }
  calls_.Close(connection, NotSentError(address_, reason), MayHaveRunError(address_, reason));
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnectionLost();
  if (calls_.some_wait() && state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::AttemptFailed(const absl::Status& why) {
  last_failure_ = why;
  ++connect_failures_;
  backoff_.OnFailure();
  Pause();
  const absl::Status status = NoServerError(address_, why);
  Report(status);
  calls_.EndWaiting(status, /*also_patient=*/absl::IsInvalidArgument(why));
  for (ConnectionWatcher& watcher : watchers_) watcher.OnNoConnection(status);
}

void ClientConnection::Pause() {
  state_ = State::kPausing;
  engine_.timers().Schedule(this, engine_.clock().NowNs() + backoff_.NextPauseUs() * kNsPerUs);
}

void ClientConnection::OnTimer() {
  state_ = State::kIdle;
  if (calls_.some_wait() || on_connected_ || wanted_) BeginAttempt();
}

void ClientConnection::OnCallWaits() {
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::EndConnection(absl::Status reason, std::string_view why) {
  if (connection_ == nullptr || state_ != State::kOpen) return;
  close_reason_ = std::move(reason);
  connection_->Close(why);
}

// --- the end ------------------------------------------------------------------------------------

void ClientConnection::Shutdown() {
  const absl::Status gone =
      absl::CancelledError(StrCat("the channel to ", address_, " was closed"));
  WEFT_CHECK(watchers_.empty());  // RemoteMemory goes before its channel
  state_ = State::kEnded;
  engine_.timers().Cancel(this);
  Report(gone);
  calls_.Shutdown(gone);
  if (connection_ == nullptr) {
    delete this;
  } else {
    connection_->Close("the client has closed its channel");
  }
}

// --- facts --------------------------------------------------------------------------------------

absl::StatusOr<PathInfo> ClientConnection::path() const {
  if (state_ == State::kOpen) return connection_->path();
  return absl::UnavailableError(last_failure_.ok() ? StrCat("not connected to ", address_)
                                                   : absl::StrCat("not connected to ", address_,
                                                                  ": ", last_failure_.message()));
}

ChannelStats ClientConnection::stats() const {
  ChannelStats stats = calls_.stats();
  stats.connects = connects_;
  stats.connect_failures = connect_failures_;
  return stats;
}

}  // namespace weft
