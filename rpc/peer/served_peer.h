// What the halves of one connection that serve its peer have in common.
//
// They come one after the other, as the peer ends its calls and begins again (peer_connection.h),
// and one that has ended stays as long as handlers of it run. What is bounded for each connection
// is counted here, over all of them.
//
// Threads: the engine's.
// Lifetime: shared by the PeerConnection and the halves, each of which may be the last.
// Invariants: transfers are under way at most for the half that has ended last.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rpc/wire/completion_id.h"

namespace weft {

class PeerConnection;

class ServedPeer {
 public:
  // Halves that have ended while handlers of them run, when the peer may begin again: each has had
  // as many calls and streams as a connection may have. A channel that is opened again leaves one
  // of them as a rule, and for as long as its handlers take to see that they are cancelled. Higher:
  // a peer can have more handlers running that do not look; lower: a channel that is opened again
  // waits sooner for such handlers of earlier ones.
  static constexpr uint32_t kMostEndedHalves = 4;

  // `connection`: until ForgetConnection(). `incarnation`: 0 if it is not known yet.
  ServedPeer(PeerConnection* connection, std::string id, uint64_t incarnation)
      : connection_(connection), id_(std::move(id)), incarnation_(incarnation) {}

  const std::string& id() const { return id_; }
  uint64_t incarnation() const { return incarnation_; }
  void set_incarnation(uint64_t incarnation) { incarnation_ = incarnation; }
  // The peer's, opened on this connection: perhaps some that have ended (completion_records.h).
  std::vector<SessionId>& opened_sessions() { return opened_sessions_; }

  // --- for the connection -----------------------------------------------------------------------

  // The half that serves is about to end.
  void OnHalfEnding() { moving_ = true; }
  // The peer may be told that its calls have ended: memory that it had lent to them is not touched
  // any more, and not too many of their handlers run. REQUIRES: no half serves.
  bool may_begin_again() const { return !moving_ && halves_ <= kMostEndedHalves; }
  void ForgetConnection() { connection_ = nullptr; }

  // --- for the halves ---------------------------------------------------------------------------

  void OnHalfMade() { ++halves_; }
  // One has ended, and its last transfer too. The connection hears of it.
  void OnHalfQuiet();
  // The last handler of one that has ended has finished. The connection hears of it.
  void OnHalfGone();

 private:
  PeerConnection* connection_;  // null: it has closed
  const std::string id_;
  uint64_t incarnation_;
  std::vector<SessionId> opened_sessions_;  // at most kMaxConnectionSessions
  uint32_t halves_ = 0;
  bool moving_ = false;
};

}  // namespace weft
