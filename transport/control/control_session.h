// One connection's control side: what dialing and accepting have in common, and all of its life
// after the handshake.
//
//   stage        set by                                  left for
//   kHandshake   construction                            kOpen, kEnding
//   kOpen        Opened(): both sides have a link        kBroken, kEnding
//   kBroken      the link broke before the lifeline      kEnding, when the lifeline has said why,
//                did: the peer's Bye, or the end of      or kReasonNs later
//                its process, is about to be heard
//   kEnding      Finish(): the connection is over and     kRetired, when the peer has closed, or
//                its handler knows; the socket still      kLingerNs later
//                carries the last words to the peer
//   kRetired     nothing is left; the transport deletes it
//
// The lifeline: an end of the control socket without a Bye means that the peer's process or host is
// gone. The link is abandoned right then, inside the poller's call, so that not even the flush at
// the end of this turn touches it; the rest follows in the next turn. Silence for too long
// (peer_watch.h) means the same, but that the peer is told, in case that it wakes up.
//
// Threads: one engine's. Callbacks of the connection's user come from Run(), which
//   Transport::Poll() calls for sessions in the ready list.
// Lifetime: sessions belong to their context's lists; Retire() hands one to the transport, which
//   deletes it outside of callbacks.
// Errors: a status returned by OnFrame() ends the session, and the peer is told its text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "core/intrusive_list.h"
#include "core/timer_wheel.h"
#include "transport/control/control_socket.h"
#include "transport/control/domain_set.h"
#include "transport/control/grant_queue.h"
#include "transport/control/hello.h"
#include "transport/control/local_proof.h"
#include "transport/control/path_counters.h"
#include "transport/control/peer_watch.h"
#include "transport/engine.h"
#include "transport/framing/framed_connection.h"

namespace weft {

class ControlSession;
struct ReadyTag;   // has something to do in the next Poll()
struct MemberTag;  // lives, or waits to be deleted

// What the sessions of one transport share.
struct ControlContext {
  EngineContext engine;
  DomainSet* domains = nullptr;
  ConnectionTable* table = nullptr;
  PathCounters* paths = nullptr;
  IntrusiveList<ControlSession, ReadyTag> ready;
  IntrusiveList<ControlSession, MemberTag> members;
  IntrusiveList<ControlSession, MemberTag> retired;
  uint32_t lingering = 0;

  uint64_t now_ns() const { return engine.clock->NowNs(); }
  // What this process offers, and why not the rest; nothing is opened.
  std::vector<PathOffer> Offers(const PathPolicy& policy) {
    return domains->Offers(policy, now_ns());
  }
};

class ControlSession : public ListNode<ReadyTag>,
                       public ListNode<MemberTag>,
                       protected ControlSocketHandler,
                       protected ConnectionOwner,
                       private PeerWatch::Host {
 public:
  virtual ~ControlSession();
  ControlSession(const ControlSession&) = delete;
  ControlSession& operator=(const ControlSession&) = delete;

  // From Transport::Poll().
  void Run();
  // The transport ends: CANCELLED for the connection, no lingering.
  void Shutdown();

 protected:
  enum class Stage : uint8_t { kHandshake = 1, kOpen = 2, kBroken = 3, kEnding = 4, kRetired = 5 };

  // How long a broken link waits for the reason. The lifeline of a dead process ends within
  // microseconds of its links; of the 100 ms in which calls are to fail this is a small part.
  static constexpr uint64_t kReasonNs = 20'000'000;
  // How long the last words may take. A peer that does not read them in this time never will.
  static constexpr uint64_t kLingerNs = 1'000'000'000;
  // Sockets that carry last words at one time; beyond it they are closed at once.
  static constexpr uint32_t kMaxLingering = 256;

  explicit ControlSession(ControlContext* context);

  // --- for the handshakes -----------------------------------------------------------------------

  // Frames of the handshake. Bye is dealt with here.
  virtual absl::Status OnFrame(const ControlFrame& frame) = 0;
  // The alarm that the handshake has set.
  virtual void OnHandshakeAlarm() = 0;
  // The link that the handshake has started.
  virtual void OnPathUp() = 0;
  virtual void OnPathBroken(const absl::Status& why) = 0;
  // Called in Run() before frames are looked at: what else may have happened.
  virtual void Advance() {}
  // Bytes can travel; false while dialing.
  virtual bool connected() const { return true; }
  // The peer broke the rules of the control connection.
  virtual void OnProtocolError(const absl::Status& why) { Fail(why); }
  // Bytes have arrived or a dial is decided; in the poller's call.
  virtual void OnActivity() {}
  // Finish() is under way: give back what the handshake holds.
  virtual void OnFinish() {}

  ControlContext& context() { return *context_; }
  FramedConnection& connection() { return *connection_; }
  bool has_connection() const { return connection_ != nullptr; }
  absl::Status CreateConnection(ConnectionHandler* handler, const LinkOptions& options);
  ControlSocket* socket() { return socket_.get(); }
  // Takes a connected or dialing socket and watches it.
  absl::Status TakeSocket(Descriptor descriptor, bool dialing);
  void DropSocket() { socket_.reset(); }
  Stage stage() const { return stage_; }

  void Wake();
  void SetAlarm(uint64_t deadline_ns);

  // Starts the link of a candidate that both sides are to try now.
  absl::Status StartLink(size_t candidate, FramingDomain* domain, const LinkPeer& peer, bool active,
                         const LinkAgreement& agreement);
  // What this side tells in its hello.
  ControlLimits OwnLimits() const;
  // Both links are up: the candidate's reason and the others', then the user's OnOpen().
  // `peer`: what the other side has told.
  void Opened(size_t candidate, const std::string& chosen_reason, const ControlLimits& peer);
  // Null where there are not so many.
  PathCandidate* Candidate(size_t index);
  void Reject(PathCandidate* candidate, std::string reason);

  // The end of everything but the socket. `last_words`, if there are any, go to the peer.
  struct LastWords {
    ControlType type;
    std::string body;
  };
  void Finish(const absl::Status& why, bool peer_dead, const std::optional<LastWords>& last_words);
  // With a Bye of the status' text.
  void Fail(const absl::Status& why);

  Neighbour neighbour_;  // shm only; outlives the link

 private:
  struct Alarm final : Timer {
    explicit Alarm(ControlSession* session) : session(session) {}
    void OnTimer() override;
    ControlSession* const session;
  };

  void OnControlActivity() final;
  void OnLinkUp(FramedConnection& connection) final;
  void OnBroken(FramedConnection& connection, const absl::Status& why) final;
  void OnCloseRequested(FramedConnection& connection, std::string_view why) final;
  void SendGrant(FramedConnection& connection, ByteSpan grant) final;
  // PeerWatch::Host
  void SendHeartbeat() final;
  bool HasUnread() final;
  void OnPeerSilent() final;

  void RunHandshake();
  void RunOpen();
  void RunEnding();
  void StartWatch(const ControlLimits& peer);
  void FailSilentPeer();
  void HearLifeline();
  void DeliverGrants();
  bool lifeline_gone() const { return socket_ != nullptr && socket_->gone(); }
  // Lets the peer have the last words, then Retire().
  void Linger();
  // Closes the socket, and lets the transport delete this.
  void Retire();

  ControlContext* const context_;
  Stage stage_ = Stage::kHandshake;
  Alarm alarm_;
  bool alarm_rang_ = false;
  LinkOptions link_options_;
  PeerWatch watch_;
  uint64_t heard_bytes_ = 0;  // of socket_->received_bytes()
  bool silent_ = false;       // the watch has declared the peer dead
  bool bye_heard_ = false;
  bool flooded_ = false;  // more frames than any honest peer sends
  bool crossed_ = false;  // the peer gave up the path while this side opened it
  bool counted_lingering_ = false;
  std::string bye_reason_;
  GrantQueue grants_;
  absl::Status broken_;
  std::unique_ptr<ControlSocket> socket_;
  std::unique_ptr<FramedConnection> connection_;
};

}  // namespace weft
