// One connection, from the first byte on its control socket to the last: the socket and its frames,
// the handshake, the link that the handshake brings up, heartbeats, grants, and the end.
//
//   stage        set by                                  left for
//   kDialing     Dial(): the client's socket connects    kHandshake, kEnding
//   kHandshake   Accept(), a connected socket            kOpen, kEnding
//   kOpen        the handshake decides kOpen: both       kBroken, kEnding
//                sides have a link
//   kBroken      the link broke before the control       kEnding, when the control socket has said
//                socket did: the peer's Bye, or the      why, or kReasonNs later
//                end of its process, is about to come
//   kEnding      Finish(): the connection is over and    kRetired, when the peer has closed, or
//                its handler knows; the socket still     kLingerNs later
//                carries the last words to the peer
//   kRetired     Retire(): nothing is left; the          (deleted)
//                transport deletes it
//
// What it is made of, each part with its own header:
//
//   Dialer                            connects the client's socket          kDialing
//   DialHandshake or AcceptHandshake  decides which path, and how           kHandshake
//   ControlSocket                     frames in and out                     all but kDialing
//   FramedConnection                  what users see: messages, transfers   until kEnding
//   PeerGroups                        when to send a heartbeat, and when    kOpen, kBroken
//                                     the peer is dead
//   GrantQueue                        grants that users are to be told of   kOpen, kBroken
//
// Each part answers with values; this class alone carries out what they say.
//
// The control socket is the connection's lifeline: its end without a Bye means that the peer's
// process or host is gone. The link is abandoned right then, inside the poller's call, so that not
// even the flush at the end of this turn touches it; the rest follows in the next turn. Silence for
// too long (peer_groups.h) means the same, but that the peer is told, in case that it wakes up.
//
// Threads: one engine's. Callbacks of the connection's user come from Run(), which
//   Transport::Poll() calls for connections in the ready list.
// Lifetime: in the context's `members` until retired, then in `retired`, from where the transport
//   deletes it, outside of callbacks.
// Errors: OnClosed() of the connection's handler says how it ended.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/intrusive_list.h"
#include "core/rate_budget.h"
#include "core/timer_wheel.h"
#include "transport/control/accept_handshake.h"
#include "transport/control/control_socket.h"
#include "transport/control/dial_handshake.h"
#include "transport/control/dialer.h"
#include "transport/control/domain_set.h"
#include "transport/control/grant_queue.h"
#include "transport/control/link_secret.h"
#include "transport/control/local_proof.h"
#include "transport/control/newcomers.h"
#include "transport/control/path_counters.h"
#include "transport/control/peer_groups.h"
#include "transport/control/peer_watch.h"
#include "transport/control/shared_tls.h"
#include "transport/engine.h"
#include "transport/framing/framed_connection.h"

namespace weft {

class ControlConnection;
struct ReadyTag;   // has something to do in the next Poll()
struct MemberTag;  // lives, or waits to be deleted

// What the connections of one transport share.
struct ControlContext {
  EngineContext engine;
  DomainSet* domains = nullptr;
  ConnectionTable* table = nullptr;
  PathCounters* paths = nullptr;
  Newcomers* newcomers = nullptr;
  PeerGroups* peers = nullptr;
  SharedTls* tls = nullptr;
  Counter connections_refused;  // clients for which there was no room
  Counter hung_up;              // who had, before anything was made of them (network_listener.h)
  Counter joins_refused;        // sockets that no link has waited for
  // Sockets for other engines, which those had no room for (shared_listener.h).
  Counter handovers_refused;
  Counter accepted;  // connections of listeners that have not ended, with strangers
  IntrusiveList<ControlConnection, ReadyTag> ready;
  IntrusiveList<ControlConnection, MemberTag> members;
  IntrusiveList<ControlConnection, MemberTag> retired;
  uint32_t lingering = 0;  // in kEnding

  uint64_t now_ns() const { return engine.clock->NowNs(); }
};

class ControlConnection final : public ListNode<ReadyTag>,
                                public ListNode<MemberTag>,
                                private PeerGroups::Member,
                                private Newcomer,
                                private ConnectionOwner,
                                private Timer {
 public:
  // The client's. Nothing is dialed before the next Poll(); `handler` hears how it ends. An error:
  // nothing has begun. REQUIRES: addresses of `server`, not empty; checked options.
  static absl::StatusOr<Connection*> Dial(ControlContext* context, const ServerAddress& server,
                                          std::vector<KernelAddress> addresses,
                                          const ConnectOptions& options, PathPolicy policy,
                                          ConnectionHandler* handler);
  // The server's: `socket` is a client that nobody knows yet, a stranger. One that cannot be
  // watched is closed.
  static void Accept(ControlContext* context, std::shared_ptr<ListenerState> listener,
                     Descriptor socket);

  ~ControlConnection() override;
  ControlConnection(const ControlConnection&) = delete;
  ControlConnection& operator=(const ControlConnection&) = delete;

  // From Transport::Poll().
  void Run();
  // A server's, whose client is not open yet.
  bool is_newcomer() const { return listener_ != nullptr && stage_ == Stage::kHandshake; }
  // The transport ends: CANCELLED for the connection, no lingering.
  void Shutdown();

 private:
  enum class Stage : uint8_t {
    kDialing = 1,
    kHandshake = 2,
    kOpen = 3,
    kBroken = 4,
    kEnding = 5,
    kRetired = 6,
  };

  // How long a broken link waits for the reason. The control socket of a dead process ends within
  // microseconds of its links; of the 100 ms in which calls are to fail this is a small part.
  static constexpr uint64_t kReasonNs = 20'000'000;
  // How long the last words may take. A peer that does not read them in this time never will.
  static constexpr uint64_t kLingerNs = 1'000'000'000;
  // Sockets that carry last words at one time; beyond it they are closed at once.
  static constexpr uint32_t kMaxLingering = 256;
  // Between two lines of the log about clients that a listener has sent away: often enough for
  // whoever tries options, and too seldom for strangers to fill a disk.
  static constexpr uint64_t kRefusalLogNs = 1'000'000'000;

  // Frames of kinds that this side does not know, and may skip: a newer peer may have reason for
  // one beside each of its heartbeats, all of which come at once after a pause of this side.
  static constexpr uint64_t kSkippedAtOnce = PeerWatch::kMaxFrames;
  static constexpr uint64_t kSkippedIntervalNs = kMinPeerTimeoutNs / PeerWatch::kSharedPerTimeout;

  // `key`: as ControlLimits::engine_key; a server has none yet.
  ControlConnection(ControlContext* context, Stage stage, const LinkOptions& options,
                    const std::optional<SecurityOptions>& security, const Nonce128& key);

  absl::Status CreateConnection(ConnectionHandler* handler);
  // Takes a connected socket and watches it.
  absl::Status TakeSocket(Descriptor socket);
  OwnSide own_side();
  OwnConnection own_connection();

  // Events. Those of the socket and the timer come from the engine's turn; Run() does the rest.
  void OnSocket();
  void OnTimer() override;
  void OnLinkUp(FramedConnection& connection) override;
  void OnBroken(FramedConnection& connection, const absl::Status& why) override;
  void OnCloseRequested(FramedConnection& connection, std::string_view why) override;
  void SendGrant(FramedConnection& connection, ByteSpan grant) override;
  void PutOut() override;
  bool tries_path() const override;
  bool waits_for_us() const override { return !had_turn_ && context_->ready.IsLinked(this); }
  bool is_unread() const override { return false; }
  void SendHeartbeat() override { socket_->SendIgnorable(ControlType::kHeartbeat); }
  bool HasUnread() const override { return socket_->HasUnread(); }
  void OnSilent() override;
  void Wake();
  void SetAlarm(uint64_t deadline_ns);

  // The stages.
  void RunStage();
  void RunDialing();
  void RunHandshake();
  // Both sides have to prove who they are.
  bool has_security() const { return credentials_ != nullptr; }
  // The peer has to prove who it is, and has not done so.
  bool LacksSecurity() const;
  // For the log: a client is sent away.
  void TellRefused(const absl::Status& why);
  PeerIdentity IdentityOver(PathKind path) const;
  bool close_requested() const;
  void HandOverSocket(bool is_right);
  void RunOpen();
  void RunEnding();
  // DATA_LOSS: the peer has sent more that is skipped than it may.
  absl::Status CheckSkipped();

  // The handshake.
  // What `event`, a function of the handshake, answers.
  template <class Event>
  auto Ask(Event event) {
    if (auto* dial = std::get_if<DialHandshake>(&handshake_)) return event(*dial);
    return event(std::get<AcceptHandshake>(handshake_));  // Ours: Stage::kHandshake
  }
  void Perform(HandshakeStep step);
  absl::Status StartLink(LinkPlan plan);
  void StartProof(const ProofPlan& plan);
  HandshakeStep Admit();
  void Open(const ControlLimits& peer);

  // The open connection.
  void ReadFrames();
  void DeliverGrants();
  void FailSilentPeer();

  // The end of everything but the socket. `bye`, if there is one, goes to the peer.
  void Finish(const absl::Status& why, bool peer_dead, const std::optional<std::string>& bye);
  // With a Bye of the status' text.
  void Fail(const absl::Status& why);
  // The peer has said Bye.
  void FinishByPeer(const std::string& reason);
  // The control socket has ended without a Bye.
  bool lifeline_cut() const { return socket_ != nullptr && socket_->gone() && !bye_.has_value(); }
  // Lets the peer have the last words, then Retire().
  void Linger();
  // Closes the socket, and lets the transport delete this.
  void Retire();

  // Constant after construction.
  ControlContext* const context_;
  ControlLimits limits_;  // what this side tells in its hello; a server's key from Admit() on
  const uint64_t transfer_timeout_ns_;
  const uint64_t started_ns_;
  std::shared_ptr<ListenerState> listener_;      // null: the client's
  std::shared_ptr<TlsCredentials> credentials_;  // null: without security
  ServerAddress server_;                         // that a client dials
  LinkSecrets link_secrets_;                     // with security

  Stage stage_;
  bool alarm_rang_ = false;
  bool had_turn_ = false;        // Run() was called
  bool put_out_ = false;         // too many newcomers: it is to end
  bool lingering_ = false;       // counted in context_->lingering
  bool silent_ = false;          // the peer is declared dead
  uint64_t heard_bytes_ = 0;     // of socket_->received_bytes(), as the group knows it
  uint64_t judged_skipped_ = 0;  // of socket_->skipped_frames()
  RateBudget skip_budget_{kSkippedAtOnce, kSkippedIntervalNs};
  std::optional<uint64_t> client_key_;  // whose it is, counted among the connections of listener_
  std::optional<std::string> bye_;      // the peer's reason, once the connection was open
  absl::Status broken_;                 // of kBroken
  absl::Status misconduct_;  // what the peer has done since Open that ends the connection

  std::unique_ptr<Dialer> dialer_;
  std::variant<std::monostate, DialHandshake, AcceptHandshake> handshake_;
  std::unique_ptr<LocalProofClient> proof_;
  std::optional<absl::StatusOr<Neighbour>> proof_result_;
  Neighbour neighbour_;  // shm: the link points into it
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<FramedConnection> connection_;
  GrantQueue grants_;
};

}  // namespace weft
