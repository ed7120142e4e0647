// One engine's side of a Server: its services, its listeners and its connections. A server with
// several engines has one of these for each, which share nothing but the handlers; the first has
// the sockets that listen, and the others take part in what it accepts.
//
// Threads: as in server.h where the names agree; the rest on the engine's thread.
// Lifetime: belongs to the Server. Connections belong to it, and stay until their calls have ended.
// Invariants: stats().running() = sum of running calls of all connections.
//
//   States, and who moves them:
//     kServing       construction. -> kMovesClients, kDraining: Shutdown()
//     kMovesClients  Shutdown(grace), where it has moved before: requests are run. -> kDraining:
//                    clients that were told of it have left, or half of the grace is over
//     kDraining      requests are refused, and clients were told to leave. -> kClosing: nothing is
//                    under way for any client, or the grace is over, or there is none
//     kClosing       connections are closed. Ended when the last one is gone, with its handlers
//
// Moved is a mark beside the state: MoveAway() was called, and another process accepts. Clients
// that understand it were told, and leave; requests are run as before.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/client_shares.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "rpc/peer/peer_sessions.h"
#include "rpc/server/admission.h"
#include "rpc/server/audit_log.h"
#include "rpc/server/completion_records.h"
#include "rpc/server/dispatch.h"
#include "rpc/server/finished_calls.h"
#include "rpc/server/rebalance.h"
#include "rpc/server/server.h"
#include "rpc/server/server_calls.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_tallies.h"
#include "rpc/server/session_service.h"
#include "rpc/wire/beside.h"
#include "transport/descriptor.h"
#include "transport/engine.h"
#include "transport/transport.h"

namespace weft {

class ServerCore final : private Acceptor, private PeerSessions::Host, private Timer {
 public:
  // With several engines `options` are this one's part of the server's, and `common` is what is
  // one number for all of them; null: there is one engine.
  ServerCore(EngineCore& engine, const ServerOptions& options,
             std::shared_ptr<CommonLimits> common = nullptr);
  ~ServerCore() override;

  absl::Status AddService(Service* service, Executor* executor);
  // What further engines take part by; null in a network where they cannot.
  // `socket`: ListenOptions::socket.
  absl::StatusOr<std::shared_ptr<SharedListener>> Listen(const std::string& address,
                                                         int socket = -1);
  // Takes clients of the first engine's address.
  absl::Status JoinListener(const std::shared_ptr<SharedListener>& shared);
  // The last of these two is as if it had not been, but for clients that have come meanwhile.
  void StopNewestListener();
  std::string address() const;
  // A session for a channel that is about to be opened, which joins it; else UnreservePeer().
  absl::StatusOr<PeerSession*> ReservePeer(const std::string& id, const std::string& address);
  void UnreservePeer(PeerSession& session);

  // --- for another process that takes the place of this one (handover.h) ------------------------
  // Each waits for the engine.

  // Of the listener that was asked for so, a second descriptor; invalid: there is none.
  Descriptor ListeningSocket(const std::string& asked);
  void HoldClients();
  bool HasHandshakes();
  // Who was kept aside, with the address that was asked for.
  std::vector<std::pair<std::string, Descriptor>> StopAccepting();
  void TakeClient(const std::string& asked, Descriptor client);
  absl::Status ResumeAccepting();
  // The addresses are another process's, when this one has ended: the files of Unix sockets stay.
  void LeaveAddresses();
  // They are from now on: tells the clients.
  void MoveAway();

  // --- for several engines (rebalance.h) --------------------------------------------------------

  // Looks from now on whether `all` engines, this one's core among them, are even.
  void StartRebalance(std::vector<ServerCore*> all);
  // The engine's. Looks at each connection, and returns how many are going to leave that were asked
  // to; asks so many more, if so many may be asked, and returns how many were.
  uint32_t LookForLeaving(uint32_t patience);
  uint32_t MoveConnections(uint32_t most);

  void Wait() { engine_.Wait(stopped_); }
  // Shutdown() without waiting: the engine begins with its next turn.
  void StartShutdown(uint64_t grace_us);
  void Shutdown(uint64_t grace_us);
  // Adds its own. Waits for the engine, unless this is inside of its turn; without `waits` they may
  // be those of an engine in the middle of a call.
  void AddStats(bool waits, ServerStats* sum);

  // --- for connections and calls ----------------------------------------------------------------

  EngineCore& engine() { return engine_; }
  const ServerOptions& options() const { return options_; }
  const DispatchTable& methods() const { return methods_; }
  // Runs what it is given inside Run(): it stands for the engine.
  Executor& in_place() { return in_place_; }
  ServerTallies& stats() { return stats_; }
  // What is wrong with a client's hello that could be decoded.
  static absl::Status CheckClientHello(const rpc::ClientHello& hello);
  // What one client has in running_bytes but for replies, of all its connections, which keep this:
  // requests that run, and messages of streams that no handler has read.
  std::shared_ptr<uint64_t> HeldBytesOf(uint64_t client);
  // Whether a client that has `of_client` may have so many more.
  bool MayHold(size_t bytes, uint64_t of_client) const {
    // While no more than half of all is taken, each leaves as much as it has: most calls end here.
    if (stats_.running_bytes + bytes <= options_.max_running_bytes / 2) [[likely]]
      return true;
    return LeavesAsMuch(of_client, bytes, stats_.running_bytes, options_.max_running_bytes,
                        least_of_client());
  }
  // The largest request, and what may come beside it.
  uint64_t least_of_client() const { return options_.max_request_bytes + kMaxExtrasBytes; }
  // Counts so many more into both until LetGo(). An error: there is no room, or none for the
  // client.
  absl::Status Charge(size_t bytes, uint64_t& of_client);
  // The same, where that has been looked at.
  void Hold(size_t bytes, uint64_t& of_client) {
    stats_.running_bytes += bytes;
    of_client += bytes;
  }
  void LetGo(size_t bytes, uint64_t& of_client) {
    stats_.running_bytes -= bytes;
    of_client -= bytes;
  }
  // Count a reply that waits for its client into running_bytes, and out of it.
  void ChargeReply(size_t bytes) {
    stats_.running_bytes += bytes;
    stats_.unsent_reply_bytes += bytes;
  }
  void UnchargeReply(size_t bytes) {
    stats_.running_bytes -= bytes;
    stats_.unsent_reply_bytes -= bytes;
  }
  // If such replies have more than half of max_running_bytes: ends connections of the client that
  // most of them wait for, those first that most wait for. Requests of others would find no room. A
  // single reply that waits for the one that most of them wait for is not counted.
  void EndSlowest();
  absl::Status RunningBytesError(uint64_t of_client) const;
  // `bytes`: of a request and its attachment.
  absl::Status RequestTooLargeError(size_t bytes) const;
  ServerCalls& calls() { return calls_; }
  CompletionRecords& records() { return records_; }
  AuditLog& audit_log() { return audit_log_; }
  // Null: the server has no limits.
  Admission* admission() { return admission_.get(); }
  // The server's own method of this number; null: there is none.
  const MethodEntry* OwnMethod(uint16_t number) const { return sessions_.Find(number); }
  bool draining() const { return state_ >= State::kDraining; }
  bool moved() const { return moved_; }
  bool closing() const { return state_ == State::kClosing; }
  // Between these the server does not end: handlers that are told that they are cancelled may end,
  // and with the last one the server would.
  void HoldEnd() { ++holds_; }
  void LetEnd() {
    if (--holds_ == 0 && draining()) LookForTheEnd();  // this may be gone now
  }
  // Those of all connections and records: tests ask for them, where nobody drives the engine.
  void CheckInvariants();
  // Whose handles a client may use on a connection, which has opened.
  void SetTenant(Connection& connection) override {
    if (options_.tenant_of) connection.memory().set_tenant(options_.tenant_of(connection.path()));
  }

  // A call ended on another thread than the engine's. Any thread.
  void FinishElsewhere(ServerCall* call);
  // A connection has closed and its last call has ended: deletes it.
  void Retire(ServerConnection* connection);
  // A call has ended.
  void OnCallEnded() {
    ++stats_.ended;
    if (draining()) [[unlikely]]
      OnCallEndedDraining();
  }

 private:
  enum class State : uint8_t { kServing = 1, kMovesClients = 2, kDraining = 3, kClosing = 4 };

  // How long a shutdown waits for clients that nobody drives, perhaps: since it began, and since
  // the last call has ended or a large message was under way. Who waits in a blocking call has
  // heard of the goaway then, and closed: it takes a round trip (10 us to some 10 ms) and a time
  // slice of a busy machine. Who waits for nothing does not close, and would hold up every shutdown
  // for the whole grace. Longer delays the restart of a server with such clients; shorter takes the
  // connection from clients that were about to leave.
  static constexpr uint64_t kQuietNs = 100'000'000;
  // How often the server looks whether large messages were taken, of which nobody tells.
  static constexpr uint64_t kLookNs = 10'000'000;

  absl::StatusOr<ConnectionHandler*> OnIncoming(Connection& connection) override;

  // PeerSessions::Host.
  ConnectionHandler* MakeServing(Connection& connection, std::shared_ptr<ServedPeer> peer) override;
  void BeginServing(ConnectionHandler& serving, Connection& connection,
                    std::string_view client_hello) override;
  void EndServing(ConnectionHandler& serving, Connection& connection) override;
  void OnProtocolError() override { ++stats_.protocol_errors; }
  void OnPeerConnectionGone() override;
  rpc::ServerHello MakeHello() const override;

  void OnTimer() override;  // of the look that is due in this state

  // For connections that nobody uses (leave_notices.h).
  void StartToLookForIdle();
  void LookForIdle();
  absl::Status CheckHello() const;
  absl::Status BindLimits();
  template <class Open>
  absl::StatusOr<std::shared_ptr<SharedListener>> AddListener(const std::string& asked, int socket,
                                                              Open open);
  // Says, once, that this process may have too few for the clients that the options allow.
  void LookAtDescriptors();
  void BeginShutdown(uint64_t grace_us);
  void LookForMoved();
  void BeginToDrain();
  void CloseConnections();
  void OnCallEndedDraining();
  void LookForTheEnd();
  bool SomeoneIsComing(uint64_t now_ns);

  // Constant after construction.
  EngineCore& engine_;
  const ServerOptions options_;

  // Runs handlers where they are, on the engine, inside Run(): for interceptors.
  class InPlace final : public Executor {
   public:
    bool Run(Function<void()> task) override {
      task();
      return true;
    }
  };
  InPlace in_place_;

  // Constant once listening; closed once draining.
  DispatchTable methods_;

  // Engine thread only.
  ServerTallies stats_;
  const std::shared_ptr<CommonLimits> common_limits_;  // null: there is one engine
  const std::unique_ptr<Admission> admission_;         // null: there are no limits
  struct Listening {
    std::string asked;  // by Listen(); empty: the first engine's
    std::unique_ptr<Listener> listener;
  };
  std::vector<Listening> listeners_;
  ServerCalls calls_;  // free ones
  CompletionRecords records_{*this};
  SessionService sessions_{*this};
  IntrusiveList<ServerConnection> connections_;
  ClientShares shares_;                                                // of connections_
  absl::flat_hash_map<uint64_t, std::weak_ptr<uint64_t>> held_bytes_;  // by client
  PeerSessions peers_;
  AuditLog audit_log_;
  Rebalance rebalance_{*this};
  bool told_of_no_security_ = false;  // in the log, as below
  bool told_of_few_descriptors_ = false;
  State state_ = State::kServing;
  bool moved_ = false;           // MoveAway() was called
  uint32_t holds_ = 0;           // HoldEnd() without its LetEnd()
  uint64_t grace_end_ns_ = 0;    // since Shutdown(grace)
  uint64_t moves_end_ns_ = 0;    // kMovesClients
  uint64_t quiet_since_ns_ = 0;  // kDraining: see kQuietNs

  // Any thread.
  FinishedCalls finished_;
  Waiter stopped_;
  std::atomic<bool> started_shutdown_{false};
  std::mutex shutdown_mutex_;  // held through Shutdown(): its second caller waits for the first
  bool shut_down_ = false;     // guarded by shutdown_mutex_
  mutable std::mutex mutex_;
  std::string address_;     // guarded by mutex_
  bool has_peers_ = false;  // guarded by mutex_: OpenPeer() was called
};

}  // namespace weft
