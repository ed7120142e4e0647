// A channel's second connection, to the process that has taken over its server's address: what is
// new goes that way while what is under way ends on the first connection, and until the channel has
// a connection of its own again.
//
//   state      from                     to
//   waiting    construction             OnConnected() -> open; Drain() -> gone
//   open       its connection is up     it is lost, or its process leaves and nothing is under way
//                                       on it -> waiting, and dials again; its process leaves
//                                       (goaway, moved), or Drain() -> draining
//   draining   something may be under   its connection is gone -> gone
//              way, which ends where it
//              began; nothing new goes
//              over it
//   gone       none                     destroyed, by OnBridgeGone()
//
// Where it drains and the channel has no connection of its own yet, another one is made.
//
// Threads: the engine's.
// Lifetime: the ClientConnection's whose calls are its front. It may be destroyed inside of
//   ClientConnection::OnBridgeGone(), and at any time outside of its other callbacks: what is under
//   way ends.
// Errors: calls that it carries end as channel.h says.
#pragma once

#include <cstdint>
#include <string>

#include "core/timer_wheel.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/client_connection.h"
#include "rpc/client/connection_watcher.h"
#include "transport/engine.h"

namespace weft {

class Bridge final : private ConnectionWatcher, private CallsWatcher, private Timer {
 public:
  // All outlive it. It carries calls of `host`, whose OnBridge() and OnBridgeGone() it calls.
  Bridge(ClientConnection& host, EngineCore& engine, const std::string& address,
         const ChannelOptions& options);
  ~Bridge() override;
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  ClientCalls& calls() { return connection_->calls(); }
  ClientConnection& connection() { return *connection_; }
  bool open() const { return state_ == State::kOpen; }
  bool draining() const { return state_ >= State::kDraining; }
  // It carries nothing new.
  void Drain();

 private:
  enum class State : uint8_t { kWaiting = 1, kOpen = 2, kDraining = 3, kGone = 4 };

  // ConnectionWatcher.
  void OnConnected(Connection&) override;
  void OnConnectionLeaving(const absl::Status&) override;
  bool IsBusy() const override { return false; }
  void OnConnectionLost() override;
  void OnNoConnection(const absl::Status&) override;
  void OnRoom() override {}  // the calls' OnFreed() tells more
  // CallsWatcher. Neither may complete a call: the timer does.
  void OnEnd(const ClientCall&, const absl::Status&) override {}
  void OnFreed() override { WorkSoon(); }
  // Timer: tells the host what has become of it.
  void OnTimer() override;

  void WorkSoon();
  // What waits here for room, and was not sent, waits at the host.
  void GiveBack();

  ClientConnection& host_;
  EngineCore& engine_;
  ClientConnection* const connection_;  // ends itself when it was shut down
  State state_ = State::kWaiting;
};

}  // namespace weft
