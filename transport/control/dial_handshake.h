// The client's half of the handshake: greet, then try the paths one after the other.
//
//   state        set by                                         left for
//   kNew         construction                                   kGreeting
//   kGreeting    Begin(): the ClientHello is sent               a candidate, the end
//   kProving     a candidate over shm, the first time: the      kTrying, the next candidate
//                exchange over the server's local socket
//   kTrying      a candidate: PathTry is sent, the server       kLinking, the next candidate
//                prepares its side of the link
//   kLinking     PathReady has come: the link is brought up     kConfirming, the next candidate
//   kConfirming  this side's link is up: PathUp is sent, the    the end (open), the next candidate
//                server's Open is awaited
//
// A candidate that fails, at this side or at the server, or takes longer than path_timeout_ns,
// gives way to the next one. All together take at most until the connect deadline.
//
// Threads, Lifetime: handshake.h. Errors: UNAVAILABLE where another try may succeed (no answer, no
//   path came up), FAILED_PRECONDITION where it will not before somebody changes something (another
//   protocol, no common path), and what the server refused with.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/handshake.h"
#include "transport/control/path_policy.h"
#include "transport/transport.h"

namespace weft {

// Whom to connect to, and how.
struct DialTerms {
  std::string server;  // the address, for texts
  ConnectOptions options;
  PathPolicy policy;
  uint64_t deadline_ns = 0;  // of all of it
};

class DialHandshake {
 public:
  enum class State : uint8_t {
    kNew = 1,
    kGreeting = 2,
    kProving = 3,
    kTrying = 4,
    kLinking = 5,
    kConfirming = 6,
  };

  DialHandshake(const OwnSide& own, const OwnConnection& connection, DialTerms terms);
  DialHandshake(const DialHandshake&) = delete;
  DialHandshake& operator=(const DialHandshake&) = delete;

  // The socket is connected.
  HandshakeStep Begin(const std::string& server_address);

  HandshakeStep OnFrame(const ControlFrame& frame);
  // The peer broke the rules of the control connection; `why` names what it speaks instead.
  HandshakeStep OnProtocolError(const absl::Status& why, ControlFrameReader::Greeting greeting);
  HandshakeStep OnLinkUp();
  HandshakeStep OnLinkDown(const absl::Status& why);
  // In kProving. RESOURCE_EXHAUSTED from LocalProofClient::Start() is OnProofBusy().
  HandshakeStep OnProof(absl::StatusOr<Neighbour> neighbour);
  HandshakeStep OnProofBusy();
  HandshakeStep OnAlarm();

  // When OnAlarm() is to be called; it may be called earlier. It changes with each event.
  uint64_t alarm_ns() const;
  State state() const { return state_; }
  uint32_t wanted_engine() const { return terms_.options.link.server_engine; }

 private:
  absl::StatusOr<HandshakeStep> Take(const ControlFrame& frame);
  absl::StatusOr<HandshakeStep> OnServerHello(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnPathReady(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnPathFailed(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnOpen(ByteSpan body);

  // Goes on with `step` to the first untried candidate that can be begun, or to the end.
  HandshakeStep TryNext(HandshakeStep step);
  void Prove(FramingDomain* domain, HandshakeStep* step);
  void Try(FramingDomain* domain, HandshakeStep* step);
  // The candidate is given up, here and at the server.
  void Reject(std::string_view reason, HandshakeStep* step);
  HandshakeStep GiveUp(std::string_view reason);

  // The server has heard of the candidate.
  bool attempting() const { return state_ >= State::kTrying; }
  absl::StatusOr<FramingDomain*> OpenDomain();
  PathCandidate& current() { return connection_.facts->candidates[candidate_]; }
  // Of the current candidate, which has both: it is tried.
  const PathOffer& own_offer() const;
  const PathOffer& peer_offer() const;

  // Constant after construction.
  const OwnSide own_;
  const OwnConnection connection_;
  const DialTerms terms_;

  State state_ = State::kNew;
  uint64_t candidate_end_ns_ = kNever;  // of the candidate's time
  uint64_t retry_ns_ = kNever;          // when to ask a busy local socket again
  std::string server_address_;          // numeric, as this side has reached it
  ClientHello hello_;                   // as sent
  ServerHello server_;                  // as received
  size_t candidate_ = 0;
};

}  // namespace weft
