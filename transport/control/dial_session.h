// The client's half of the handshake: dial, greet, then try the paths one after the other.
//
//   legal orders:  kDialing -> kGreeting -> an attempt -> ... -> an attempt -> kDone
//   an attempt:    [kProving ->] kTrying -> kLinking -> kConfirming
//   An attempt that fails, at this side or at the server, or takes longer than path_timeout_ns,
//   gives way to the next candidate; all together take at most connect_timeout_ns.
//
// Threads: one engine's. Lifetime: as ControlSession. Errors: UNAVAILABLE where another try may
//   succeed (no server, no answer, no path came up), FAILED_PRECONDITION where it will not
//   before somebody changes something (another protocol, no common path), what the server
//   refused with.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/control/address.h"
#include "transport/control/control_session.h"
#include "transport/control/path_policy.h"

namespace weft {

class DialSession final : public ControlSession, private LocalProofResult {
 public:
  DialSession(ControlContext* context, ServerAddress address,
              std::vector<KernelAddress> kernel_addresses, const ConnectOptions& options,
              PathPolicy policy);

  // Begins; the handler hears how it ends. An error: nothing has begun.
  // REQUIRES: not empty addresses, checked options.
  absl::StatusOr<Connection*> Start(ConnectionHandler* handler);

 private:
  enum class State : uint8_t {
    kDialing = 1,     // the kernel connects, or this side waits until it can ask again
    kGreeting = 2,    // the ClientHello is sent; the server's answer is awaited
    kProving = 3,     // shm only: the exchange over the server's local socket is under way
    kTrying = 4,      // PathTry is sent; the server prepares its side of the link
    kLinking = 5,     // the link is being brought up
    kConfirming = 6,  // this side's link is up, PathUp is sent; the server's Open is awaited
    kDone = 7,        // open, or given up
  };

  // ControlSession
  absl::Status OnFrame(const ControlFrame& frame) override;
  void OnHandshakeAlarm() override;
  void OnPathUp() override;
  void OnPathBroken(const absl::Status& why) override;
  void Advance() override;
  bool connected() const override { return state_ != State::kDialing; }
  void OnActivity() override { dial_decided_ = true; }
  void OnFinish() override;
  // LocalProofResult
  void OnLocalProof(absl::StatusOr<Neighbour> neighbour) override;

  void DialNext();
  void FinishDialing();
  void Greet();
  absl::Status OnServerHello(ByteSpan body);
  void TryNext();
  void TryAgainToProve();
  void FinishProof();
  void StartTry();
  absl::Status OnPathReady(ByteSpan body);
  absl::Status OnPathFailed(ByteSpan body);
  absl::Status OnOpen(ByteSpan body);
  void GiveUpPath(const std::string& reason);
  void OnTimeout();
  void ScheduleAlarm();
  PathCandidate& current() { return connection().facts().candidates[candidate_]; }
  // Of the current candidate, which has both: it is tried.
  const PathOffer& own_offer() const;
  const PathOffer& peer_offer() const;

  // Constant after construction.
  const ServerAddress address_;
  const std::vector<KernelAddress> kernel_addresses_;
  const ConnectOptions options_;
  const PathPolicy policy_;

  State state_ = State::kDialing;
  uint64_t connect_deadline_ns_ = 0;
  uint64_t step_deadline_ns_ = 0;  // of this dial, or of this attempt
  uint64_t retry_ns_ = 0;          // when to ask a busy socket again; kNever: nothing to retry
  size_t next_address_ = 0;
  bool dial_decided_ = false;
  absl::Status dial_error_;

  ClientHello hello_;   // as sent
  ServerHello server_;  // as received
  size_t candidate_ = 0;
  uint32_t attempt_ = 0;
  bool attempting_ = false;  // the server has heard of the current candidate under attempt_
  std::unique_ptr<LocalProofClient> proof_;
  std::optional<absl::StatusOr<Neighbour>> proof_result_;
};

}  // namespace weft
