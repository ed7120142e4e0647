#include "rpc/client/bridge.h"

#include <utility>

#include "core/intrusive_list.h"
#include "rpc/client/client_streams.h"

namespace weft {

Bridge::Bridge(ClientConnection& host, EngineCore& engine, const std::string& address,
               const ChannelOptions& options)
    : host_(host),
      engine_(engine),
      connection_(
          new ClientConnection(engine, address, OptionsOfServer(options), nullptr, &host.calls())) {
  connection_->Watch(this);
  connection_->calls().SetWatcher(this);
  connection_->WantConnection();
}

Bridge::~Bridge() {
  engine_.timers().Cancel(this);
  connection_->calls().SetWatcher(nullptr);
  IntrusiveList<ConnectionWatcher, ConnectionWatcherTag>::Remove(this);
  connection_->Shutdown();
}

void Bridge::WorkSoon() {
  if (!armed()) engine_.timers().Schedule(this, engine_.clock().NowNs());
}

void Bridge::GiveBack() {
  calls().WantNoRoom();
  calls().streams().GiveWaiting(host_.calls().streams());
}

void Bridge::Drain() {
  if (draining()) return;
  const bool was_open = state_ == State::kOpen;
  state_ = was_open ? State::kDraining : State::kGone;
  if (was_open) return connection_->Leave();  // OnConnectionLeaving() has the rest
  GiveBack();
  WorkSoon();
}

void Bridge::OnConnected(Connection&) {
  if (draining()) return connection_->Leave();
  state_ = State::kOpen;
  WorkSoon();
}

// Its process is about to end, and the next one has come (moved), or will (goaway). Of an idle one
// the connection closes by itself, and the next is dialed: with its pauses, so that processes that
// leave at once are not dialed without an end.
void Bridge::OnConnectionLeaving(const absl::Status&) {
  GiveBack();
  const bool idle = calls().none_under_way() && !calls().has_lent();
  if (!draining()) state_ = idle ? State::kWaiting : State::kDraining;
  WorkSoon();
}

void Bridge::OnConnectionLost() {
  state_ = draining() ? State::kGone : State::kWaiting;
  if (!draining()) connection_->WantConnection();
  WorkSoon();
}

// After a pause.
void Bridge::OnNoConnection(const absl::Status&) {
  if (draining()) {
    state_ = State::kGone;
    return WorkSoon();
  }
  connection_->WantConnection();
}

void Bridge::OnTimer() {
  if (state_ == State::kGone) return host_.OnBridgeGone(*this);
  host_.OnBridge(*this);
}

// --- calls that go over it ----------------------------------------------------------------------

void ClientCalls::SetNext(ClientCalls* next) {
  if (std::exchange(next_, next) == next) return;
  waiting_.SetElsewhere(next != nullptr);
  if (!leaving_) return;
  next == nullptr ? waiting_.Hold() : static_cast<void>(waiting_.Release());
}

ClientCalls::Sent ClientCalls::SendAtNext(ClientCall& call) {
  ClientCalls& next = *next_;
  call.carrier = &next;
  const Sent sent = next.SendAttempt(call);
  if (sent != Sent::kNotNow) {
    next.FlushUnlessInTurn();
    return sent;
  }
  call.carrier = call.client;
  if (next.is_open()) next.WantRoom();
  return Sent::kNotNow;
}

ClientStreams* ClientCalls::NextStreams() {
  if (next_ == nullptr || !next_->is_open()) return nullptr;
  if (next_->streams().has_slot()) return &next_->streams();
  next_->WantRoom();
  return nullptr;
}

// If it has none, it will tell.
bool ClientCalls::NextHasRoom() {
  if (!waiting_.may_pass(Priority::kNormal)) return false;
  if (next_->HasRoom()) return true;
  if (next_->is_open()) next_->WantRoom();
  return false;
}

void ClientCalls::OnMoved(ByteSpan frame) {
  CallId id;
  if (!DecodeNotice(frame, &id) || id != CallId()) {
    return ProtocolError("a moved whose fields disagree");
  }
  if (std::exchange(moved_, true) || goaway_) {
    return ProtocolError("a second moved, or one behind a goaway");
  }
  host_.OnMoved();
}

ChannelOptions OptionsOfServer(const ChannelOptions& options) {
  ChannelOptions server = options;
  server.connect_at_once = false;
  server.interceptors = {};
  server.retry = {};
  return server;
}

void AddSums(const ChannelStats& more, ChannelStats& sum) {
  sum.calls_started += more.calls_started;
  sum.calls_ok += more.calls_ok;
  sum.calls_failed += more.calls_failed;
  sum.deadlines_exceeded += more.deadlines_exceeded;
  sum.late_replies += more.late_replies;
  sum.connects += more.connects;
  sum.connect_failures += more.connect_failures;
}

void Add(const ChannelStats& more, ChannelStats& sum) {
  AddSums(more, sum);
  sum.outstanding += more.outstanding;
  sum.abandoned += more.abandoned;
  sum.queued += more.queued;
  sum.streams += more.streams;
}

}  // namespace weft
