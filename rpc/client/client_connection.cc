#include "rpc/client/client_connection.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/block_memory.h"
#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "rpc/client/balancer.h"
#include "rpc/client/bridge.h"
#include "rpc/client/channel_lanes.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/hello.pb.h"
#include "rpc/wire/status_text.h"
#include "transport/local_memory.h"
#include "transport/path.h"
#include "transport/path_kinds.h"
#include "weft/status.h"

namespace weft {

namespace {

// What a connection has of its channel's: behind a front, what is done once for each call is done
// there.
ChannelOptions OptionsBehind(const ClientCalls* front, const ChannelOptions& options) {
  ChannelOptions own = options;
  if (front == nullptr) return own;
  own.connect_at_once = false;
  own.interceptors = {};
  own.retry = {};
  return own;
}

// Whether it may be over ofi_tcp. Options that no network takes lead nowhere.
bool MayUseOfiTcp(const LinkOptions& options) {
  const absl::StatusOr<PathKinds> kinds = ReadPathKinds(options);
  return kinds.ok() && kinds->Allows(PathKind::kOfiTcp);
}

}  // namespace

// Alone in its page: what else lay there would be missing in a child of fork(), on kernels before
// 5.12, once a card knows the byte.
struct ClientConnection::SparePage {
  static size_t PageBytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

  const Block page = Block::MustTake(PageBytes(), PageBytes(), MemoryKind::kObjects);
  LocalMemory byte{{page.data(), 1}};
};

ClientConnection::ClientConnection(EngineCore& engine, const std::string& address,
                                   const ChannelOptions& options, PeerSession* session,
                                   ClientCalls* front)
    : backoff_(options.min_backoff_us, options.max_backoff_us,
               engine.clock().NowNs() ^ std::hash<std::string>()(address)),
      engine_(engine),
      address_(address),
      options_(OptionsBehind(front, options)),
      makes_checksums_(MayUseOfiTcp(options.link)),
      session_(session),
      front_(front),
      calls_(this, engine_, address_, options_, front),
      events_(calls_, engine_, address_) {}

ClientConnection::~ClientConnection() = default;

ChannelState ClientConnection::StateFor(State state) const {
  if (calls_.next() != nullptr && state != State::kEnded) return ChannelState::kReady;
  switch (state) {
    case State::kIdle:
    case State::kLeaving:  // nothing new is sent on what is left of the connection
      return ChannelState::kIdle;
    case State::kConnecting:
      return ChannelState::kConnecting;
    case State::kOpen:
      return ChannelState::kReady;
    case State::kPausing:
      return ChannelState::kTransientFailure;
    case State::kEnded:
      return ChannelState::kShutdown;
  }
  return ChannelState::kShutdown;
}

void ClientConnection::Enter(State state) {
  state_ = state;
  TellState();
}

void ClientConnection::TellState() {
  const ChannelState state = StateFor(state_);
  if (lanes_ != nullptr) {
    lanes_->SetReady(lane_, state == ChannelState::kReady);
    if (state_ == State::kEnded) lanes_->SetAway(lane_, /*may_stand_aside=*/false);
  }
  events_.OnState(state);
}

void ClientConnection::StandAside() {
  if (lanes_ != nullptr) lanes_->SetAway(lane_, /*may_stand_aside=*/calls_.next() == nullptr);
}

bool ClientConnection::is_away() const { return lanes_ != nullptr && lanes_->IsAway(lane_); }

// --- many servers -------------------------------------------------------------------------------

void ClientConnection::Balance(std::unique_ptr<AddressSource> source,
                               const BalancingOptions& balancing) {
  balancer_ =
      std::make_unique<Balancer>(engine_, *this, address_, options_, balancing, std::move(source));
  calls_.SetBalancer(balancer_.get());
  balancer_->Start();
}

void ClientConnection::OnServersChanged(ChannelState state) {
  const bool ready = state == ChannelState::kReady;
  if (lanes_ != nullptr && state_ != State::kEnded) {
    lanes_->SetReady(lane_, ready);
    // Its servers are tried again and again, whatever calls there are.
    if (!ready) lanes_->SetAway(lane_, /*may_stand_aside=*/true);
  }
  events_.OnState(state);
  if (ready) Report(absl::OkStatus());
}

void ClientConnection::OnNoServer(const absl::Status& why) {
  Report(why);
  calls_.EndWaiting(why, /*also_patient=*/false);
}

ChannelState ClientConnection::state() const {
  return balancer_ != nullptr && state_ != State::kEnded ? balancer_->state() : StateFor(state_);
}

// --- connecting ---------------------------------------------------------------------------------

void ClientConnection::Connect(Function<void(absl::Status)> done) {
  on_connected_ = std::move(done);
  if (balancer_ != nullptr) {
    if (balancer_->state() == ChannelState::kReady) Report(absl::OkStatus());
    return;  // it connects by itself, and tells
  }
  if (state_ == State::kOpen || calls_.next() != nullptr) return Report(absl::OkStatus());
  if (state_ == State::kIdle) BeginAttempt();
}

void ClientConnection::WantConnection() {
  if (state_ == State::kIdle) return BeginAttempt();
  if (state_ == State::kPausing || state_ == State::kLeaving) wanted_ = true;
}

void ClientConnection::Report(const absl::Status& connected) {
  if (Function<void(absl::Status)> done = std::exchange(on_connected_, nullptr)) done(connected);
}

std::string ClientConnection::EncodeHello() const {
  rpc::ClientHello hello;
  hello.set_protocol(kRpcProtocolVersion);
  hello.set_max_outstanding_calls(options_.max_outstanding_calls);
  hello.set_max_reply_bytes(options_.max_reply_bytes);
  hello.set_max_windows(kMaxWindows);
  hello.set_max_extras_bytes(kMaxExtrasBytes);
  hello.set_max_streams(options_.max_streams);
  hello.set_stream_window_messages(options_.stream_window_messages);
  hello.set_stream_window_bytes(options_.stream_window_bytes);
  hello.set_control_calls(kControlCalls);
  hello.set_takes_goaway(true);
  hello.set_takes_moved(session_ == nullptr);
  hello.set_moves_ahead(MayBridge());
  hello.set_takes_attachments(true);
  // Others connect again at once, whether there are calls or not, or their calls cannot wait.
  hello.set_leaves_idle(session_ == nullptr && front_ == nullptr &&
                        options_.max_queued_calls >= options_.max_outstanding_calls);
  hello.set_drives_itself(engine_.drives_itself());
  return hello.SerializeAsString();
}

absl::StatusOr<Connection*> ClientConnection::Dial() {
  ConnectOptions options;
  options.link = options_.link;
  options.hello = EncodeHello();
  options.security = options_.security;
  if (session_ != nullptr) return session_->Connect(std::move(options));
  return engine_.transport().Connect(address_, options, &calls_);
}

void ClientConnection::BeginAttempt() {
  if (state_ != State::kConnecting) Enter(State::kConnecting);
  wanted_ = false;
  close_reason_ = absl::OkStatus();
  absl::StatusOr<Connection*> connection = Dial();
  if (!connection.ok()) return AttemptFailed(connection.status());
  connection_ = *connection;
}

void ClientConnection::TakeConnection(Connection& connection) {
  engine_.timers().Cancel(this);
  wanted_ = false;
  close_reason_ = absl::OkStatus();
  connection_ = &connection;
  if (state_ != State::kConnecting) Enter(State::kConnecting);
}

void ClientConnection::OnOpen(Connection& connection) {
  explanation_ =
      StrCat(ExplainPaths(connection.candidates()), SecurityText(connection.path()), "\n");
  if (state_ != State::kConnecting) return;
  if (absl::Status agreed = OpenCalls(connection); !agreed.ok()) {
    connection.Close(ToStd(agreed.message()));
    close_reason_ = std::move(agreed);
    return;
  }
  gave_way_ = moved_ = idle_ = false;
  EndBridges();
  opened_ns_ = engine_.clock().NowNs();
  Enter(State::kOpen);
  ++connects_;
  Report(absl::OkStatus());
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnected(connection);
  calls_.Pump();
}

absl::Status ClientConnection::OpenCalls(Connection& connection) {
  rpc::ServerHello hello;
  if (session_ != nullptr) {
    WEFT_RETURN_IF_ERROR(session_->ReadHello(connection, &hello));
  } else if (!hello.ParseFromString(connection.peer_hello())) {
    return absl::FailedPreconditionError(
        "what listens there is not a Weft server: its hello "
        "cannot be decoded");
  }
  if (hello.protocol() != kRpcProtocolVersion) {
    return absl::FailedPreconditionError(StrCat("the server speaks version ", hello.protocol(),
                                                " of the call protocol, this client version ",
                                                kRpcProtocolVersion));
  }
  WEFT_RETURN_IF_ERROR(calls_.Open(connection, hello));
  peer_incarnation_ = hello.incarnation();
  return absl::OkStatus();
}

void ClientConnection::OnWritable() {
  if (!is_open()) return;
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
  const bool opened = state_ != State::kConnecting || !close_reason_.ok();
  if (!opened && !connection.candidates().empty()) {
    explanation_ = ExplainPaths(connection.candidates());
  }
  const absl::Status reason = close_reason_.ok() ? why : close_reason_;
  if (state_ == State::kConnecting) return GiveWay(reason) ? void() : AttemptFailed(reason);

  const bool left = state_ == State::kLeaving;
  engine_.timers().Cancel(this);
  last_failure_ = reason;
  // A server that drops connections before it ever answers is no better than none. (A peer may have
  // nothing to answer.)
  const uint64_t lasted_ns = engine_.clock().NowNs() - opened_ns_;
  const bool of_use = calls_.answered() || idle_;
  if (of_use || (session_ != nullptr && lasted_ns > options_.max_backoff_us * kNsPerUs)) {
    backoff_.OnAnswer();
  }
  if (!left || !of_use) backoff_.OnFailure();
  if (backoff_.failures() > 1) {
    Pause();
  } else {
    Enter(State::kIdle);
  }
  if (!idle_) StandAside();
  calls_.Close(
      connection, NotSentError(address_, reason),
      left && has_none_ ? NotTakenError(address_, reason) : MayHaveRunError(address_, reason));
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnectionLost();
  if (state_ == State::kIdle && SomeoneWaits()) BeginAttempt();
}

// The peer has refused this attempt because its own is under way. Once: that one may never come.
bool ClientConnection::GiveWay(const absl::Status& why) {
  if (session_ == nullptr || !absl::IsAborted(why) || std::exchange(gave_way_, true)) return false;
  backoff_.OnFailure();
  engine_.timers().Schedule(this, engine_.clock().NowNs() + backoff_.NextPauseUs() * kNsPerUs);
  return true;
}

void ClientConnection::AttemptFailed(const absl::Status& why) {
  gave_way_ = false;
  last_failure_ = why;
  ++connect_failures_;
  backoff_.OnFailure();
  Pause();
  StandAside();
  const absl::Status status = NoServerError(address_, why);
  Report(status);
  const bool hopeless = absl::IsInvalidArgument(why);
  if (calls_.next() == nullptr) calls_.EndWaiting(status, /*also_patient=*/hopeless);
  if (hopeless) events_.EndWaiting(status);
  for (ConnectionWatcher& watcher : watchers_) watcher.OnNoConnection(status);
}

void ClientConnection::Pause() {
  Enter(State::kPausing);
  engine_.timers().Schedule(this, engine_.clock().NowNs() + backoff_.NextPauseUs() * kNsPerUs);
}

void ClientConnection::OnTimer() {
  if (state_ == State::kLeaving) {
    // Once this side has closed, the next connection is near: what waits now is for that.
    if (close_reason_.ok() && !moved_)
      calls_.EndWaiting(LeavingError(address_), /*also_patient=*/false);
    if (moved_) EndIfLeft();
    return;
  }
  if (state_ == State::kConnecting) return BeginAttempt();  // it has given way
  Enter(State::kIdle);
  if (is_away()) StandAside();
  if (SomeoneWaits()) BeginAttempt();
}

void ClientConnection::OnCallWaits() {
  if (balancer_ != nullptr) return balancer_->OnCallWaits();
  if (state_ == State::kIdle) return BeginAttempt();
  // From a timer: so a caller who drives the engine gives it a turn, and may find the connection
  // gone. One that only called again and again would never hear of its end.
  if (state_ == State::kLeaving && !armed()) {
    engine_.timers().Schedule(this, engine_.clock().NowNs());
  }
}

void ClientConnection::Watch(ConnectionWatcher* watcher) {
  watchers_.PushBack(watcher);
  if (state_ == State::kLeaving) watcher->OnConnectionLeaving(LeavingError(address_));
}

// --- a server that goes away --------------------------------------------------------------------

void ClientConnection::OnGoaway(bool has_none) {
  if (state_ == State::kLeaving) has_none_ = has_none;  // it had moved before, and ends now
  if (state_ != State::kOpen) return;
  BeginToLeave(has_none);
  const absl::Status why = LeavingError(address_);
  for (ConnectionWatcher& watcher : watchers_) watcher.OnConnectionLeaving(why);
  EndIfLeft();
}

void ClientConnection::BeginToLeave(bool has_none) {
  has_none_ = has_none;
  Enter(State::kLeaving);
  calls_.Leave();
}

void ClientConnection::OnMoved() {
  if (state_ != State::kOpen) return;
  moved_ = true;
  if (!MayBridge()) return Leave();
  BridgeIfNeeded();
}

// What the server does not have yet, or has not answered, shows that the connection is in use after
// all: then it stays, and the server learns why by what comes.
void ClientConnection::OnIdle(ByteSpan frame) {
  uint32_t received = 0;
  if (!DecodeNumber(frame, &received)) {
    return EndConnection(absl::DataLossError("the server sent an idle whose fields disagree"),
                         "an idle whose fields disagree");
  }
  if (state_ != State::kOpen || moved_ || !watchers_.empty()) return;
  const bool has_all = static_cast<uint32_t>(connection_->stats().messages_committed) == received;
  if (!has_all || !calls_.none_under_way() || calls_.has_lent()) return;
  // A call that runs exactly once, and pauses, has its session kept by this connection.
  if (calls_.some_wait() || calls_.has_retried()) return;
  idle_ = true;
  BeginToLeave(/*has_none=*/false);
  EndConnection(absl::UnavailableError("nobody had used the connection for as long as its server "
                                       "keeps one, and the next call connects again"),
                "the client has left its idle connection, as it was asked to");
}

void ClientConnection::BridgeIfNeeded() {
  if (!moved_ || !is_open()) return;  // its own next connection is to be the new process's
  if (!bridges_.empty() && !bridges_.back()->draining()) return;
  if (bridges_.size() >= kMaxBridges) return;  // until one is gone
  bridges_.push_back(std::make_unique<Bridge>(*this, engine_, address_, options_));
}

bool ClientConnection::GoesOver(Bridge& bridge) const { return calls_.next() == &bridge.calls(); }

void ClientConnection::GoOver(Bridge* bridge) {
  calls_.SetNext(bridge != nullptr ? &bridge->calls() : nullptr);
  TellState();
  if (bridge != nullptr) Report(absl::OkStatus());
}

void ClientConnection::OnBridge(Bridge& bridge) {
  if (!bridge.open()) {
    if (GoesOver(bridge)) GoOver(nullptr);
    return BridgeIfNeeded();
  }
  if (state_ == State::kOpen && !moved_) return bridge.Drain();  // it has come too late
  GoOver(&bridge);
  if (state_ == State::kOpen) Leave();
  if (state_ == State::kIdle) BeginAttempt();
  calls_.Pump();
}

void ClientConnection::EndBridges() {
  for (const std::unique_ptr<Bridge>& bridge : bridges_) bridge->Drain();
}

void ClientConnection::OnBridgeGone(Bridge& bridge) {
  if (GoesOver(bridge)) GoOver(nullptr);
  AddCounts(bridge.connection().stats(), past_);
  std::erase_if(bridges_, [&bridge](const auto& one) { return one.get() == &bridge; });
  BridgeIfNeeded();
}

bool ClientConnection::SomeWatcherIsBusy() {
  return std::any_of(watchers_.begin(), watchers_.end(),
                     [](const ConnectionWatcher& watcher) { return watcher.IsBusy(); });
}

void ClientConnection::EndIfLeft() {
  if (state_ != State::kLeaving || !calls_.none_under_way() || SomeWatcherIsBusy()) return;
  // A large one-way message is not the server's before it has fetched it.
  if (moved_ && connection_ != nullptr && connection_->stats().large_under_way > 0) {
    engine_.timers().Schedule(this, engine_.clock().NowNs() + kNsPerMs);
    return;
  }
  // Behind an end no release of the memory of cancelled calls would come.
  if (session_ != nullptr && calls_.has_lent()) return;
  if (session_ != nullptr) return session_->EndCalls();
  EndConnection(absl::UnavailableError("the server was about to shut down"),
                "the client has left, as it was asked to");
}

void ClientConnection::EndConnection(absl::Status reason, std::string_view why) {
  if (connection_ == nullptr || !is_open() || !close_reason_.ok()) return;
  close_reason_ = std::move(reason);
  connection_->Close(why);
}

// --- the end ------------------------------------------------------------------------------------

void ClientConnection::Shutdown() {
  const absl::Status gone =
      absl::CancelledError(StrCat("the channel to ", address_, " was closed"));
  WEFT_CHECK(watchers_.empty());  // User: RemoteMemory goes before its channel
  spare_page_.reset();            // nothing reads into it any more
  Enter(State::kEnded);
  engine_.timers().Cancel(this);
  calls_.SetNext(nullptr);
  for (const std::unique_ptr<Bridge>& bridge : std::exchange(bridges_, {})) {
    AddCounts(bridge->connection().stats(), past_);
  }
  Report(gone);
  events_.Shutdown(gone);
  calls_.Shutdown(gone);
  // What was lent stays with the connection. Else that of a session does without this.
  const bool hears_end = session_ == nullptr || calls_.has_lent();
  if (session_ != nullptr) hears_end ? session_->LeaveByClosing() : session_->Leave();
  if (connection_ == nullptr || !hears_end) {
    delete this;
  } else if (session_ == nullptr) {
    connection_->Close("the client has closed its channel");
  }
}

LocalMemory& ClientConnection::SpareByte() {
  if (spare_page_ == nullptr) spare_page_ = std::make_unique<SparePage>();
  return spare_page_->byte;
}

// --- facts --------------------------------------------------------------------------------------

absl::StatusOr<PathInfo> ClientConnection::path() const {
  if (balancer_ != nullptr) return balancer_->path();
  if (is_open()) return connection_->path();
  if (calls_.next() != nullptr) return bridges_.back()->connection().path();
  return absl::UnavailableError(last_failure_.ok() ? StrCat("not connected to ", address_)
                                                   : absl::StrCat("not connected to ", address_,
                                                                  ": ", last_failure_.message()));
}

std::string ClientConnection::explanation() const {
  return balancer_ != nullptr ? balancer_->Explain() : explanation_;
}

ChannelStats ClientConnection::stats() const {
  ChannelStats stats = calls_.stats();
  if (balancer_ != nullptr) {
    balancer_->AddTo(stats);
    return stats;
  }
  stats.connects = connects_;
  stats.connect_failures = connect_failures_;
  Add(past_, stats);
  for (const std::unique_ptr<Bridge>& bridge : bridges_) Add(bridge->connection().stats(), stats);
  return stats;
}

void AddCounts(const ChannelStats& more, ChannelStats& sum) {
  sum.calls_started += more.calls_started;
  sum.calls_ok += more.calls_ok;
  sum.calls_failed += more.calls_failed;
  sum.deadlines_exceeded += more.deadlines_exceeded;
  sum.late_replies += more.late_replies;
  sum.connects += more.connects;
  sum.connect_failures += more.connect_failures;
  sum.retries += more.retries;
  sum.hedges += more.hedges;
  sum.retries_refused += more.retries_refused;
}

void Add(const ChannelStats& more, ChannelStats& sum) {
  AddCounts(more, sum);
  sum.outstanding += more.outstanding;
  sum.abandoned += more.abandoned;
  sum.queued += more.queued;
  sum.streams += more.streams;
}

}  // namespace weft
