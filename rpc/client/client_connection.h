// The engine's side of a Channel: its connection, when there is one, and its calls.
//
//   States, and who moves them:
//     kIdle        no connection and none wanted. -> kConnecting: a call
//     kConnecting  -> kOpen: OnOpen; -> kPausing or kIdle: OnClosed, the attempt failed
//     kOpen        calls flow. -> kIdle, kConnecting: OnClosed (again at once if calls wait)
//     kPausing     between attempts. -> kConnecting: the pause is over and calls wait; -> kIdle
//     kEnded       Shutdown(). Deletes itself when its connection is gone.
//
// What is here is the life of the connection: attempts, pauses, loss. The way of a call is in
// client_calls.h.
//
// Threads: the engine's; of calls(), what client_calls.h says.
// Lifetime: made by Channel; ends by Shutdown(), which completes every call, and deletes itself.
// Invariants: calls() are open exactly while kOpen.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/function.h"
#include "core/huge_page_arena.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/client/backoff.h"
#include "rpc/client/channel.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/connection_watcher.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft {

class alignas(kCacheLineBytes) ClientConnection final : private ClientCalls::Host,
                                                        private Timer,
                                                        public InHugePageArena {
 public:
  ClientConnection(EngineCore& engine, const std::string& address, const ChannelOptions& options);

  ClientCalls& calls() { return calls_; }

  // Starts to connect if there is no connection. `done` is called once with the outcome.
  void Connect(Function<void(absl::Status)> done);

  // Completes all calls with CANCELLED, closes the connection, and deletes this when it is gone.
  void Shutdown();

  // --- for remote memory ------------------------------------------------------------------------

  const std::string& address() const { return address_; }
  // `watcher` hears what becomes of the connection, until it is destroyed; before this is.
  void Watch(ConnectionWatcher* watcher) { watchers_.PushBack(watcher); }
  // Null: there is none now.
  Connection* open_connection() { return state_ == State::kOpen ? connection_ : nullptr; }
  // Starts to connect, if there is no connection and no attempt. Watchers hear, also inside.
  void WantConnection();
  // The peer is of use: the next loss of the connection is the first one again.
  void PeerAnswered() { backoff_.OnAnswer(); }

  // --- facts ------------------------------------------------------------------------------------

  absl::StatusOr<PathInfo> path() const;
  const std::string& explanation() const { return explanation_; }
  ChannelStats stats() const;

 private:
  enum class State : uint8_t { kIdle = 1, kConnecting = 2, kOpen = 3, kPausing = 4, kEnded = 5 };

  ~ClientConnection() override;

  // ClientCalls::Host.
  void OnOpen(Connection& connection) override;
  void OnWritable() override;
  void OnClosed(Connection& connection, const absl::Status& why) override;
  void OnCallWaits() override;
  void EndConnection(absl::Status reason, std::string_view why) override;
  // Timer: the pause between attempts is over.
  void OnTimer() override;

  void BeginAttempt();
  absl::Status OpenCalls(Connection& connection);
  void AttemptFailed(const absl::Status& why);
  void Pause();
  void Report(const absl::Status& connected);

  State state_ = State::kIdle;
  bool wanted_ = false;               // kPausing: a watcher waits for the next attempt
  Connection* connection_ = nullptr;  // kConnecting, kOpen; kEnded until OnClosed
  Backoff backoff_;
  // Constant after construction:
  EngineCore& engine_;
  const std::string address_;
  const ChannelOptions options_;

  ClientCalls calls_;

  uint64_t connects_ = 0;          // that opened
  uint64_t connect_failures_ = 0;  // attempts that did not
  absl::Status close_reason_;      // why this side has closed; OK: it has not
  absl::Status last_failure_;
  std::string explanation_;
  IntrusiveList<ConnectionWatcher, ConnectionWatcherTag> watchers_;
  Function<void(absl::Status)> on_connected_;
};

}  // namespace weft
