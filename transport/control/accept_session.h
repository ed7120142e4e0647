// The server's half of the handshake: hear the client, decide, answer, and bring up the paths that
// the client tries.
//
//   legal orders:  kGreeting -> kOffered -> an attempt -> ... -> an attempt -> kDone
//   an attempt:    kLinking -> kOffered (it failed, here or at the client) or kDone
//
// A stranger costs little: until its hello is complete and right it holds a socket and the bytes
// that it sent, for kHelloNs at most, and leaves first when there are too many of its kind.
//
// Threads: one engine's. Lifetime: as ControlSession; the policy is shared with the listener.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/control/control_session.h"
#include "transport/control/path_policy.h"

namespace weft {

class AcceptSession;
struct GreetingTag;  // its hello is not complete

// What a listener and its sessions share; lives until the last of them is gone.
class AcceptPolicy final : public LocalProofHandler {
 public:
  AcceptPolicy(Acceptor* acceptor, const ListenOptions& options, PathPolicy paths)
      : acceptor(acceptor), options(options), paths(std::move(paths)) {}

  // LocalProofHandler: finds the session that gave this nonce out.
  absl::StatusOr<HandOver> OnNeighbour(const Nonce128& nonce, Neighbour neighbour) override;

  Acceptor* acceptor;  // null: the listener is gone
  const ListenOptions options;
  const PathPolicy paths;
  std::string local_socket;  // empty: there is none, so no shared memory
  uint32_t connections = 0;  // past their hello; <= options.max_connections
  // Sessions whose client may present itself at the local socket, by the nonce's first half.
  std::unordered_map<uint64_t, AcceptSession*> expected;
};

class AcceptSession final : public ControlSession, public ListNode<GreetingTag> {
 public:
  // A complete hello takes a round trip; a client that needs this long is broken or hostile.
  static constexpr uint64_t kHelloNs = 2'000'000'000;

  AcceptSession(ControlContext* context, std::shared_ptr<AcceptPolicy> policy);

  // An error: the socket could not be watched; the session is retired.
  absl::Status Start(Descriptor descriptor);

  uint64_t started_ns() const { return started_ns_; }
  // There are too many strangers, and this one has been here longest.
  void Evict();

  // The client has shown at the local socket that it is here.
  absl::StatusOr<HandOver> TakeNeighbour(const Nonce128& nonce, Neighbour neighbour);

 private:
  enum class State : uint8_t {
    kGreeting = 1,  // the client's preamble and hello are awaited
    kOffered = 2,   // the ServerHello is sent; the client is to try a path
    kLinking = 3,   // PathReady is sent; this side's link and the client's PathUp are awaited
    kDone = 4,      // open, or given up
  };

  // ControlSession
  absl::Status OnFrame(const ControlFrame& frame) override;
  void OnHandshakeAlarm() override;
  void OnPathUp() override;
  void OnPathBroken(const absl::Status& why) override;
  void OnProtocolError(const absl::Status& why) override;
  void OnFinish() override;

  absl::Status OnClientHello(ByteSpan body);
  void Decide();
  void EndWithoutPath();
  void Offer();
  void OpenDomains();
  // Of the attempt's candidate, which has both: it is tried.
  const PathOffer& own_offer() const;
  const PathOffer& peer_offer() const;
  absl::Status OnPathTry(ByteSpan body);
  absl::Status StartAttempt(const PathTry& wanted);
  absl::Status OnPathFailed(ByteSpan body);
  absl::Status OnPeerUp(ByteSpan body);
  void OpenIfBothUp();
  void FailAttempt(const std::string& reason);
  void Refuse(const absl::Status& why);

  const std::shared_ptr<AcceptPolicy> policy_;

  State state_ = State::kGreeting;
  uint64_t started_ns_ = 0;
  bool counted_ = false;  // in policy_->connections
  ClientHello client_;    // as received
  ServerHello server_;    // as sent
  uint32_t attempt_ = 0;
  size_t candidate_ = 0;  // of the attempt
  bool link_up_ = false;
  bool peer_up_ = false;
};

}  // namespace weft
