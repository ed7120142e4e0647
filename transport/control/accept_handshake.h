// The server's half of the handshake: hear the client, decide, answer, and bring up the paths that
// the client tries.
//
//   state      set by                                          left for
//   kGreeting  construction                                    kOffered, the end
//   kOffered   Offer(): the ServerHello is sent; a candidate   kLinking, the end
//              has failed
//   kLinking   the client's PathTry: PathReady is sent; this   kOffered (it failed, here or at the
//              side's link and the client's PathUp are         client), the end (open: both are up)
//              awaited
//
// The hello takes three steps, because a stranger is to cost little: a right hello decides kAdmit;
// only then the control connection makes its FramedConnection, and asks Decide() which paths there
// are. If there are any, and the application takes the client, Offer() answers it.
//
// A client has its connection when both are up, and not before: who says hello and never goes on
// takes none from others. Who it is, and so how many it may have, may depend on the path as well:
// over shared memory the kernel says which user it is.
//
// Threads, Lifetime: handshake.h; the listener's state outlives it.
// Errors: a client's hello that is wrong is answered by a Refusal, anything after it by a Bye; for
//   want of a connection it is a Refusal at either time: RESOURCE_EXHAUSTED.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/control/handshake.h"
#include "transport/control/path_policy.h"
#include "transport/control/shared_listener.h"
#include "transport/tls/tls_credentials.h"
#include "transport/transport.h"

namespace weft {

class AcceptHandshake;

// What a listener and its connections share. It lives until the last of them is gone.
struct ListenerState {
  ListenerState(Acceptor* acceptor, const ListenOptions& options, PathPolicy policy,
                std::shared_ptr<SharedListener> shared)
      : acceptor(acceptor),
        options(options),
        policy(std::move(policy)),
        shared(std::move(shared)) {}

  // Whether this client (SharedListener::KeyOf()) can have one more connection.
  absl::Status CheckRoom(uint64_t client_key) const {
    return shared->CheckRoom(options, client_key);
  }
  // Its path is up: the same, and it has it until EndConnection().
  absl::Status TakeConnection(uint64_t client_key) {
    return shared->TakeConnection(options, client_key);
  }
  void EndConnection(uint64_t client_key) { shared->EndConnection(client_key); }

  Acceptor* acceptor;  // null: the listener is gone
  const ListenOptions options;
  const PathPolicy policy;
  // Null: without security.
  std::shared_ptr<TlsCredentials> credentials;
  std::string local_socket;  // empty: there is none, so no shared memory
  // With the listeners of other engines at this address: among them it has this number.
  const std::shared_ptr<SharedListener> shared;
  uint32_t number = 0;
  // Of clients that could not prove who they are, or for which there was no room, the log has a
  // line in kRefusalLogNs.
  uint64_t next_refusal_log_ns = 0;
  uint64_t refusals_not_logged = 0;
  // Handshakes whose client may present itself at the local socket, by the nonce's first half. At
  // most one for each handshake (newcomers.h).
  std::unordered_map<uint64_t, AcceptHandshake*> awaited;
};

class AcceptHandshake {
 public:
  enum class State : uint8_t { kGreeting = 1, kOffered = 2, kLinking = 3 };

  AcceptHandshake(const OwnSide& own, ListenerState* listener);
  ~AcceptHandshake() { ForgetNonce(); }
  AcceptHandshake(const AcceptHandshake&) = delete;
  AcceptHandshake& operator=(const AcceptHandshake&) = delete;

  HandshakeStep OnFrame(const ControlFrame& frame);
  // The peer broke the rules of the control connection. `greeting`: how it began.
  HandshakeStep OnProtocolError(const absl::Status& why, ControlFrameReader::Greeting greeting);
  HandshakeStep OnLinkUp();
  HandshakeStep OnLinkDown(const absl::Status& why);
  HandshakeStep OnAlarm();

  // After kAdmit, in this order. Decide() fills in the candidates and the peer's hello. False:
  // there is no path, and EndWithoutPath() is the answer. Refuse() may take the place of any of
  // them.
  bool Decide(const OwnConnection& connection);
  HandshakeStep EndWithoutPath();
  HandshakeStep Offer();
  HandshakeStep Refuse(const absl::Status& why);

  // The client was told to present this nonce. In a time that does not depend on `nonce`.
  bool IsAwaiting(const Nonce128& nonce) const { return nonce == server_.local_nonce; }
  // A client has presented `nonce` at the local socket. As LocalProofServer::OnNeighbour.
  absl::StatusOr<HandOver> TakeNeighbour(const Nonce128& nonce, Neighbour* neighbour);

  // After Decide(): the path may be shared memory, which tells who the client is.
  bool may_share_memory() const;
  size_t hello_bytes() const { return hello_bytes_; }
  // When OnAlarm() is to be called; it may be called earlier.
  uint64_t alarm_ns() const { return deadline_ns_; }
  State state() const { return state_; }

 private:
  absl::StatusOr<HandshakeStep> Take(const ControlFrame& frame);
  absl::StatusOr<HandshakeStep> OnClientHello(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnPathTry(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnPathUp(ByteSpan body);
  absl::StatusOr<HandshakeStep> OnPathFailed(ByteSpan body);
  void OpenDomains();
  absl::StatusOr<HandshakeStep> StartAttempt(const PathTry& wanted);
  HandshakeStep FailAttempt(std::string_view reason);
  HandshakeStep OpenIfBothUp();
  void ForgetNonce();
  absl::StatusOr<FramingDomain*> OpenDomain(const PathOffer& offer) {
    return own_.domains->Open(offer, own_.clock->NowNs());
  }
  // Of the candidate, which has both: it is tried.
  const PathOffer& own_offer() const;
  const PathOffer& peer_offer() const;

  // Constant after construction.
  const OwnSide own_;
  ListenerState* const listener_;

  State state_ = State::kGreeting;
  uint64_t deadline_ns_;
  OwnConnection connection_;   // from Decide() on
  ClientHello client_;         // as received
  size_t hello_bytes_ = 0;     // of its encoding
  ServerHello server_;         // as sent
  size_t next_candidate_ = 0;  // the client tries none before it
  size_t candidate_ = 0;       // of kLinking
  bool link_up_ = false;
  bool peer_up_ = false;
};

}  // namespace weft
