// The life of a client's connection: attempts, pauses, loss. Calls are in client_traffic.cc.
#include "rpc/client/client_connection.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/check.h"
#include "core/inline.h"
#include "core/strings.h"
#include "rpc/client/bulk_call.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {

ClientConnection::ClientConnection(Engine& engine, const std::string& address,
                                   const ChannelOptions& options)
    : max_reply_bytes_(options.max_reply_bytes),
      engine_(engine),
      address_(address),
      options_(options),
      jitter_(engine.clock().NowNs() ^ std::hash<std::string>()(address)),
      early_ends_(engine) {}

ClientConnection::~ClientConnection() = default;

// --- connecting ---------------------------------------------------------------------------------

void ClientConnection::Connect(Function<void(absl::Status)> done) {
  on_connected_ = std::move(done);
  if (state_ == State::kOpen) return Report(absl::OkStatus());
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::WantConnection() {
  wanted_ = true;
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::Report(const absl::Status& connected) {
  if (Function<void(absl::Status)> done = std::exchange(on_connected_, nullptr)) done(connected);
}

std::string ClientConnection::Hello() const {
  rpc::ClientHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(options_.max_outstanding_calls);
  hello.set_max_reply_bytes(options_.max_reply_bytes);
  hello.set_max_windows(kMaxWindows);
  return hello.SerializeAsString();
}

void ClientConnection::BeginAttempt() {
  state_ = State::kConnecting;
  wanted_ = false;
  close_reason_ = absl::OkStatus();
  ConnectOptions options;
  options.link = options_.link;
  options.hello = Hello();
  absl::StatusOr<Connection*> connection = engine_.transport().Connect(address_, options, this);
  if (!connection.ok()) return AttemptFailed(connection.status());
  connection_ = *connection;
}

void ClientConnection::OnOpen(Connection& connection) {
  explanation_ = ExplainPaths(connection.candidates());
  if (state_ != State::kConnecting) return;
  if (absl::Status agreed = AgreeWith(connection.peer_hello()); !agreed.ok()) {
    connection.Close(ToStd(agreed.message()));
    close_reason_ = std::move(agreed);
    return;
  }
  state_ = State::kOpen;
  if (connection.prefetch() != nullptr) {
    prefetch_ = connection.prefetch();
    RegisterLines();
  }
  ++stats_.connects;
  Report(absl::OkStatus());
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnected(connection);
  Pump();
}

absl::Status ClientConnection::AgreeWith(const std::string& server_hello) {
  rpc::ServerHello hello;
  if (!hello.ParseFromString(server_hello)) {
    return absl::FailedPreconditionError(
        "what listens there is not a Weft server: its hello "
        "cannot be decoded");
  }
  if (hello.protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the server speaks version ", hello.protocol(),
                                                " of the call protocol, this client version ",
                                                kRpcProtocolVersion));
  }
  if (hello.max_outstanding_calls() == 0 || !methods_.Learn(hello)) {
    return absl::FailedPreconditionError("the server's hello makes no sense");
  }
  slots_.emplace(std::min(hello.max_outstanding_calls(), options_.max_outstanding_calls));
  max_request_bytes_ = std::min<uint64_t>(hello.max_request_bytes(), kMaxPayloadBytes);
  max_windows_ = std::min(hello.max_windows(), kMaxWindows);
  return absl::OkStatus();
}

void ClientConnection::OnClosed(Connection& connection, const absl::Status& why) {
  connection_ = nullptr;
  prefetch_ = &PrefetchList::None();
  if (state_ == State::kEnded) {
    ReclaimAll(connection);
    delete this;
    return;
  }
  if (!connection.candidates().empty()) explanation_ = ExplainPaths(connection.candidates());
  const absl::Status reason = close_reason_.ok() ? why : close_reason_;
  if (state_ == State::kConnecting) return AttemptFailed(reason);

  last_failure_ = reason;
  methods_.Forget();
  // A server that drops connections before it ever answers is no better than none.
  if (++failures_ > 1) {
    Pause();
  } else {
    state_ = State::kIdle;
  }
  ReclaimAll(connection);
  FailSlots(NotSentError(address_, reason), MayHaveRunError(address_, reason),
            connection.first_unsent());
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnectionLost();
  if (!queue_.empty() && state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::AttemptFailed(const absl::Status& why) {
  last_failure_ = why;
  ++stats_.connect_failures;
  ++failures_;
  Pause();
  const absl::Status status = NoServerError(address_, why);
  Report(status);
  FailQueue(status, /*also_patient=*/absl::IsInvalidArgument(why));
  for (ConnectionWatcher& watcher : watchers_) watcher.OnNoConnection(status);
}

// Doubles with each failure; half of it is random, so that a crowd of clients does not come back at
// the same instant.
void ClientConnection::Pause() {
  state_ = State::kPausing;
  const uint32_t doublings = std::min<uint32_t>(failures_ - 1, 30);
  const uint64_t longest_us =
      std::min(options_.min_backoff_us << doublings, options_.max_backoff_us);
  const uint64_t pause_us = longest_us - jitter_.Uniform(longest_us / 2 + 1);
  engine_.timers().Schedule(this, engine_.clock().NowNs() + pause_us * kNsPerUs);
}

void ClientConnection::OnTimer() {
  state_ = State::kIdle;
  if (!queue_.empty() || on_connected_ || wanted_) BeginAttempt();
}

void ClientConnection::ProtocolError(std::string_view what) {
  close_reason_ = absl::DataLossError(StrCat("the server sent a malformed frame: ", what));
  connection_->Close(what);
}

// --- the end ------------------------------------------------------------------------------------

void ClientConnection::Shutdown() {
  const absl::Status gone =
      absl::CancelledError(StrCat("the channel to ", address_, " was closed"));
  WEFT_CHECK(watchers_.empty());  // RemoteMemory goes before its channel
  state_ = State::kEnded;
  engine_.timers().Cancel(this);
  Report(gone);
  const absl::Status may_have_run = WithDelivery(gone, Delivery::kMayHaveRun);
  FailSlots(may_have_run, may_have_run, 0);
  FailQueue(WithDelivery(gone, Delivery::kNotSent), /*also_patient=*/true);
  for (BulkCall& bulk : lent_) {
    if (bulk.call_ != nullptr) End(*bulk.call_, may_have_run);
  }
  early_ends_.RunAll();
  if (connection_ == nullptr) {
    delete this;
  } else {
    connection_->Close("the client has closed its channel");
  }
}

// --- lines ---------------------------------------------------------------------------------------

void ClientConnection::RegisterLines() {
  prefetch_->Register(&connection_, 2 * kCacheLineBytes);  // to the first slot
  prefetch_->Register(this, 2 * kCacheLineBytes);
  prefetch_->Register(&methods_, 1);  // the first methods' numbers
  prefetch_->Register(&engine_, 1);   // as a reply ends the call's timer
}

// --- callback calls -----------------------------------------------------------------------------

WEFT_COLD CallbackCall& ClientConnection::MakeCallbackCall() { return *new CallbackCall(*this); }

bool ClientConnection::Defer(CallbackCall& call, absl::Status* status) {
  if (early_ends_.count() >= options_.max_queued_calls) return false;
  call.early_status = std::move(*status);
  early_ends_.Add(call);
  return true;
}

// --- facts --------------------------------------------------------------------------------------

absl::StatusOr<PathInfo> ClientConnection::path() const {
  if (state_ == State::kOpen) return connection_->path();
  return absl::UnavailableError(last_failure_.ok() ? StrCat("not connected to ", address_)
                                                   : absl::StrCat("not connected to ", address_,
                                                                  ": ", last_failure_.message()));
}

ChannelStats ClientConnection::stats() const {
  ChannelStats stats = stats_;
  stats.outstanding = calls_in_slots();
  stats.queued = queued_;
  return stats;
}

void ClientConnection::CheckInvariants() {
  WEFT_CHECK(queue_.CountSlowly() == queued_ && queued_ <= options_.max_queued_calls);
  if (!slots_) return;
  slots_->CheckInvariants();
  uint32_t abandoned = 0;
  uint32_t owed = 0;
  slots_->ForEach([&](SlabHandle handle, Slot& slot) {
    abandoned += slot.call == nullptr;
    owed += slot.cancel_owed;
    WEFT_CHECK(slot.call == nullptr || slot.call->slot == handle);
  });
  WEFT_CHECK(abandoned == stats_.abandoned && owed == cancels_owed_);
}

}  // namespace weft
