#include "rpc/client/bridge.h"

#include "core/intrusive_list.h"
#include "rpc/client/client_streams.h"

namespace weft {

Bridge::Bridge(ClientConnection& host, EngineCore& engine, const std::string& address,
               const ChannelOptions& options)
    : host_(host),
      engine_(engine),
      connection_(new ClientConnection(engine, address, options, nullptr, &host.calls())) {
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

}  // namespace weft
