// The engine's side of a Channel: its connection, when there is one, and its calls.
//
//   States, and who moves them:
//     kIdle        no connection and none wanted. -> kConnecting: a call
//     kConnecting  -> kOpen: OnOpen; -> kPausing or kIdle: OnClosed, the attempt failed
//     kOpen        calls flow. -> kLeaving: the server's goaway, or its process hands over and a
//                  Bridge is open, or nobody uses it (the server's idle): then this side closes;
//                  -> kIdle, kConnecting: OnClosed (again at once if calls wait)
//     kLeaving     the server is about to shut down: what is under way goes on. What waits, and all
//                  that is new, ends as not sent, or waits for the next connection
//                  (wait_for_server; all, if another process serves there already). When nothing
//                  is under way this side closes. -> as kOpen
//     kPausing     between attempts. -> kConnecting: the pause is over and calls wait; -> kIdle
//     kEnded       Shutdown(). Deletes itself when its connection is gone.
//
// A server whose process hands its address over says so, and serves on. Then a Bridge (bridge.h) is
// dialed; when it is open, this side leaves the old connection, and what is new goes over the
// bridge until this has a connection of its own again, to the new process. If that process leaves
// as well before, there is another bridge, and what is under way on the first ends there. So no
// call waits for the calls and streams that were under way, but where kMaxBridges of them have
// some, and none passes through a bridge for ever.
//
// Programs see them as ChannelState (channel_watch.h).
//
// One of several lanes (channel_lanes.h) that has lost its connection while others have theirs
// wants another one all the time: its threads' calls go by those.
//
// A channel to a peer (rpc/peer/peer_session.h) wants a connection all the time. Its session makes
// attempts for it, and may have a connection that the peer has dialed; the connection stays for the
// peer's calls when this side has left it. Of two attempts at the same time the peer may refuse
// this one: then this side waits a while for the other, still kConnecting.
//
// The front of a channel over many servers stays kIdle: its Balancer has a ClientConnection for
// each.
//
// What is here is the life of the connection: attempts, pauses, loss. The way of a call is in
// client_calls.h.
//
// Threads: the engine's, but for what says so; of calls(), what client_calls.h says.
// Lifetime: made by Channel; ends by Shutdown(), which completes every call, and deletes itself.
// Invariants: calls() are open exactly while kOpen, and leaving exactly while kLeaving.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/cache_line.h"
#include "core/function.h"
#include "core/huge_page_arena.h"
#include "core/intrusive_list.h"
#include "core/tally.h"
#include "core/timer_wheel.h"
#include "rpc/client/backoff.h"
#include "rpc/client/channel.h"
#include "rpc/client/channel_events.h"
#include "rpc/client/client_calls.h"
#include "rpc/client/connection_watcher.h"
#include "rpc/peer/peer_session.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft {

class AddressSource;
class Balancer;
class Bridge;
class LaneStates;
class LocalMemory;
struct BalancingOptions;

class alignas(kCacheLineBytes) ClientConnection final : private ClientCallsHost,
                                                        private PeerSession::Caller,
                                                        private Timer,
                                                        public InHugePageArena {
 public:
  // Bridges at a time. All but the last have calls that outlast their server's process, for its
  // grace at the most, and each is a connection, with its memory at both sides: a server of which
  // more processes end at a time starts over and over, and then new calls wait.
  static constexpr size_t kMaxBridges = 4;

  // `session`: of a channel to a peer; outlives it, until Shutdown(). Null: it dials `address`.
  // `front`: the calls of the channel that this is one of several connections of, to one of many
  // servers or of a Bridge; null: it is the channel's own.
  ClientConnection(EngineCore& engine, const std::string& address, const ChannelOptions& options,
                   PeerSession* session = nullptr, ClientCalls* front = nullptr);

  // It joins its session. REQUIRES: it has one.
  void JoinSession() { session_->Join(this); }

  // It is the lane `lane` of a channel on several engines, and tells `lanes` of itself
  // (channel_lanes.h). Before it is used.
  void JoinLanes(std::shared_ptr<LaneStates> lanes, uint32_t lane) {
    lanes_ = std::move(lanes);
    lane_ = lane;
  }

  // It never dials: it is the front of as many servers as `source` names.
  void Balance(std::unique_ptr<AddressSource> source, const BalancingOptions& balancing);
  Balancer* balancer() { return balancer_.get(); }  // null: it dials

  ClientCalls& calls() { return calls_; }
  // Of payloads, whatever BulkOptions say. Any thread.
  bool makes_checksums() const { return makes_checksums_; }
  ChannelEvents& events() { return events_; }

  // Starts to connect if there is no connection. `done` is called once with the outcome.
  void Connect(Function<void(absl::Status)> done);

  // As if its server had said that it is about to shut down.
  void Leave() { OnGoaway(/*has_none=*/false); }

  // Completes all calls with CANCELLED, closes the connection, and deletes this when it is gone.
  void Shutdown();

  // --- for remote memory ------------------------------------------------------------------------

  const std::string& address() const { return address_; }
  // `watcher` hears what becomes of the connection, until it is destroyed; before this is.
  void Watch(ConnectionWatcher* watcher);
  // Null: there is none now.
  Connection* open_connection() { return state_ == State::kOpen ? connection_ : nullptr; }
  // Starts to connect, if there is no connection and no attempt. Watchers hear, also inside.
  void WantConnection() override;
  // A watcher is not busy any more: ends a connection that is being left if nothing else is.
  void EndIfLeft();
  // A byte that reads may fill and nobody looks at: for those whose end is all that is asked for.
  // Its registrations are those of the channel's connections, however many remote memories it has.
  LocalMemory& SpareByte();
  // The peer is of use: the next loss of the connection is the first one again.
  void PeerAnswered() { backoff_.OnAnswer(); }
  // As ClientCallsHost.
  void EndConnection(absl::Status reason, std::string_view why) override;

  // --- for bridges -------------------------------------------------------------------------------

  // It is open, or not any more, or has room again. From a timer: calls may end inside.
  void OnBridge(Bridge& bridge);
  // It is destroyed inside.
  void OnBridgeGone(Bridge& bridge);

  // --- for the balancer, of the front ------------------------------------------------------------

  // What programs see of the servers' states has changed.
  void OnServersChanged(ChannelState state);
  // What waits for a server, and not patiently, ends with that: none can be reached.
  void OnNoServer(const absl::Status& why);

  // --- facts ------------------------------------------------------------------------------------

  absl::StatusOr<PathInfo> path() const;
  // Of the server of the present connection, or of the last one; 0: none was told. Any thread.
  uint64_t peer_incarnation() const { return peer_incarnation_; }
  std::string explanation() const;
  ChannelStats stats() const;
  ChannelState state() const;

 private:
  struct SparePage;
  enum class State : uint8_t {
    kIdle = 1,
    kConnecting = 2,
    kOpen = 3,
    kLeaving = 4,
    kPausing = 5,
    kEnded = 6,
  };

  // As programs see it.
  ChannelState StateFor(State state) const;
  void Enter(State state);
  // Tells those who look at the state of it.
  void TellState();
  // Without a connection: whether its threads' calls go by other lanes meanwhile.
  void StandAside();
  bool is_away() const;

  ~ClientConnection() override;

  // PeerSession::Caller.
  ConnectionHandler* calling_half() override { return &calls_; }
  std::string EncodeHello() const override;
  const std::optional<SecurityOptions>& security() const override { return options_.security; }
  void TakeConnection(Connection& connection) override;
  bool has_calls() override { return is_open() && (!calls_.none_awaited() || SomeWatcherIsBusy()); }

  // ClientCallsHost.
  void OnOpen(Connection& connection) override;
  void OnWritable() override;
  void OnClosed(Connection& connection, const absl::Status& why) override;
  void OnCallWaits() override;
  void OnGoaway(bool has_none) override;
  void OnMoved() override;
  void OnIdle(ByteSpan frame) override;
  void OnCallsLeft() override { EndIfLeft(); }
  void OnRoom() override { events_.OnRoom(); }
  // Timer: the pause between attempts is over, or (kLeaving) what waits is to end, or (kConnecting)
  // the peer's attempt has not come.
  void OnTimer() override;

  // Calls can be sent, or were sent.
  bool is_open() const { return state_ == State::kOpen || state_ == State::kLeaving; }
  bool SomeWatcherIsBusy();
  bool SomeoneWaits() const {
    return session_ != nullptr || calls_.some_wait() || on_connected_ || wanted_ ||
           calls_.next() != nullptr || is_away();
  }
  absl::StatusOr<Connection*> Dial();
  void BeginAttempt();
  // kOpen -> kLeaving. `has_none`: as OnGoaway().
  void BeginToLeave(bool has_none);
  // Between the server's processes this side can have two connections at a time. Sessions of calls
  // that run exactly once are one process's, and many servers make up for each other.
  bool MayBridge() const {
    return session_ == nullptr && front_ == nullptr && balancer_ == nullptr &&
           !options_.retry.exactly_once;
  }
  // Another process serves the address, and neither this nor a bridge goes there: dials one, unless
  // there are too many.
  void BridgeIfNeeded();
  // What is new goes over `bridge`, and programs hear what that makes of the state. Null: it waits.
  void GoOver(Bridge* bridge);
  bool GoesOver(Bridge& bridge) const;
  void EndBridges();
  absl::Status OpenCalls(Connection& connection);
  void AttemptFailed(const absl::Status& why);
  bool GiveWay(const absl::Status& why);
  void Pause();
  void Report(const absl::Status& connected);

  State state_ = State::kIdle;
  bool wanted_ = false;               // kPausing, kLeaving: a watcher waits for the next attempt
  bool has_none_ = false;             // kLeaving: OnGoaway()'s
  bool moved_ = false;                // kOpen, kLeaving: another process serves there already
  bool idle_ = false;                 // kLeaving: nobody has used it for long
  bool gave_way_ = false;             // kConnecting: the last attempt, to the peer's
  Connection* connection_ = nullptr;  // kConnecting, kOpen, kLeaving; kEnded until OnClosed
  uint64_t opened_ns_ = 0;            // kOpen, kLeaving: since then
  Backoff backoff_;
  // Constant after construction:
  EngineCore& engine_;
  const std::string address_;
  const ChannelOptions options_;
  const bool makes_checksums_;         // it may use ofi_tcp
  PeerSession* const session_;         // null: it is no channel to a peer
  ClientCalls* const front_;           // null: it is none of many servers
  std::shared_ptr<LaneStates> lanes_;  // null: the channel has one engine
  uint32_t lane_ = 0;

  ClientCalls calls_;
  ChannelEvents events_;
  std::unique_ptr<Balancer> balancer_;  // null: it dials
  // At most kMaxBridges. The last one may carry new calls, the others drain. One for each of the
  // server's processes in turn.
  std::vector<std::unique_ptr<Bridge>> bridges_;
  ChannelStats past_;  // of those that are no more

  Tally<uint64_t> peer_incarnation_;
  uint64_t connects_ = 0;          // that opened
  uint64_t connect_failures_ = 0;  // attempts that did not
  absl::Status close_reason_;      // why this side has closed; OK: it has not
  absl::Status last_failure_;
  std::string explanation_;
  IntrusiveList<ConnectionWatcher, ConnectionWatcherTag> watchers_;
  Function<void(absl::Status)> on_connected_;
  std::unique_ptr<SparePage> spare_page_;  // null: SpareByte() was not asked for
};

// Where several make up a channel: what one has counted, into the channel's. AddCounts() adds the
// counts alone, of one that is about to go; Add() also what is so now.
void AddCounts(const ChannelStats& more, ChannelStats& sum);
void Add(const ChannelStats& more, ChannelStats& sum);

}  // namespace weft
