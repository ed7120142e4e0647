// What a client's handshake (dial_handshake.h) and a server's (accept_handshake.h) have in common.
//
// A handshake is a state machine that decides and does nothing by itself. Its control connection
// (control_connection.h) tells it every event: a frame, the link that came up or broke, the alarm.
// It answers with a HandshakeStep: what to send, and what it has decided. The control connection
// carries the step out before the next event. A handshake calls nobody back.
//
// Threads: one engine's. Lifetime: a handshake ends with the step that decides kOpen or kEnd, and
//   hears nothing after that. Errors: a peer that breaks the rules gets a step that ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "core/clock.h"
#include "transport/control/control_frame.h"
#include "transport/control/domain_set.h"
#include "transport/control/hello.h"
#include "transport/control/local_proof.h"
#include "transport/framing/connection_owner.h"
#include "transport/link.h"

namespace weft {

// What this side brings into a handshake. All of it outlives the handshake.
struct OwnSide {
  DomainSet* domains = nullptr;  // opens the paths
  const Clock* clock = nullptr;
  Neighbour* neighbour = nullptr;  // shm: the peer, once it is proved to be on this host
  ControlLimits limits;            // told in the hello
  // Whoever is on the way must not be able to read or change anything: paths that TLS does not
  // seal, and that leave this host, are not taken.
  bool is_secured = false;
};

// The connection that the handshake is about. The facts are filled in by the handshake.
struct OwnConnection {
  uint32_t index = 0;
  uint32_t token = 0;
  uint32_t first_sequence = 0;
  ConnectionFacts* facts = nullptr;
  Nonce128 engine_key = {};  // the server's, told in its hello: it depends on who the client is
  uint64_t peer_host = 0;    // the server's: PeerHost() of the client
  Nonce128 batch_proof = {};
  std::string host = {};  // the server's: its numeric address, as the client has reached it
};

// A link to start.
struct LinkPlan {
  size_t candidate = 0;
  FramingDomain* domain = nullptr;
  bool active = false;  // this side connects, the other accepts
  LinkPeer peer;
  LinkAgreement agreement;
};

// The exchange at the server's local socket (local_proof.h).
struct ProofPlan {
  std::string local_socket;
  Nonce128 nonce;
  HostFacts server;
  int domain_descriptor = -1;
};

struct HandshakeStep {
  enum class Decision : uint8_t {
    kWait = 1,       // nothing is decided
    kProve = 2,      // client: start `proof`; OnProof() follows
    kStartLink = 3,  // start `link`, before `send`. Where it cannot be started, `send` is dropped
                     // and OnLinkDown() is the next event
    kAdmit = 4,      // server: the hello is right. Make the connection, and ask Decide()
    kOpen = 5,       // the connection is open, and `peer_limits` hold
    kEnd = 6,        // it will never be, and `why`
  };
  struct Message {
    ControlType type;
    std::string body;
  };

  // In this order:
  bool drop_attempt = false;  // the link or the proof of the last candidate ends
  std::optional<ProofPlan> proof;
  std::optional<LinkPlan> link;
  std::string raw;            // bytes for a peer that does not speak this protocol
  std::vector<Message> send;  // at most one for each candidate, and two
  Decision decision = Decision::kWait;
  absl::Status why;           // kEnd
  ControlLimits peer_limits;  // kOpen
  uint64_t client_key = 0;    // kOpen, the server's: whose connection is taken (ListenerState)

  void Send(ControlType type, std::string body) { send.push_back({type, std::move(body)}); }
  // The rest of the step: the connection ends, and nothing is said.
  void End(const absl::Status& status) {
    decision = Decision::kEnd;
    why = status;
  }
  // The same, and the peer learns why.
  void EndWithBye(const absl::Status& status);
};

// Where the bytes of this path leave the host unsealed: it cannot be had.
void WithdrawIfUnsealed(PathOffer* offer);
// What the reason for a path says of sealing: ", ..."; empty: framing does not seal it.
std::string SealingReason(const OwnSide& own, const ControlLimits& peer, PathKind kind);
// Of the candidates of `facts`: this one is not taken, for `reason`.
void RejectCandidate(ConnectionFacts* facts, size_t candidate, std::string_view reason);
// This one is, and those that were not tried were not needed.
void ChooseCandidate(ConnectionFacts* facts, size_t candidate, std::string_view reason);
// Where one is untried; otherwise false. `candidate` may be any number.
bool IsUntried(const ConnectionFacts& facts, size_t candidate);

}  // namespace weft
