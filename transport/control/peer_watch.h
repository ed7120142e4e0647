// Whether the peer of open connections is still there: heartbeats in both directions, and the
// silence after which it is declared dead. One watch serves all connections to one engine
// (peer_groups.h).
//
//   Each side tells in its hello how long the other may be silent (LinkOptions::peer_timeout_ns),
//   and whether it promises heartbeats: only an engine with a thread of its own can. A side watches
//   a peer that promises. Both send some heartbeats in each of the smaller timeout.
//
// A living peer is not declared dead, because:
//   - Bytes that wait unread in the socket are a sign of life, however long ago they came. The
//     watch asks for them before it judges, so that a pause of this side alone (nobody drives, a
//     long handler, a stopped process) proves nothing against the peer.
//   - After such a pause of half the timeout or more the timeout starts again: the whole machine
//     may have been paused, and a peer that hears nothing stops sending (below).
//   - A peer that has promised no heartbeats is not watched.
// Limits: at most kMaxUnanswered heartbeats are sent to a peer of which nothing is heard, so that
//   the socket of a peer that nobody drives for days does not fill. A peer that sends more than
//   kMaxFrames frames by one connection in one interval breaks the protocol.
//
// It costs messages nothing: the clock is read once for each heartbeat.
//
// It is a calculation without a timer of its own: its owner calls OnTime() at due_ns(), and does
// what the answer says.
//
// Threads: one engine's. Lifetime: a plain value.
// Errors: none. Invariants: silent for less than the timeout, as far as it was looked at.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/clock.h"

namespace weft {

class PeerWatch {
 public:
  struct Terms {
    uint64_t own_timeout_ns = 0;   // 0: this side does not watch
    uint64_t peer_timeout_ns = 0;  // 0: the peer does not watch
    bool peer_promises = false;    // heartbeats
  };

  // Heartbeats in each of the timeouts, where one connection carries them: one may be late by half
  // the timeout, and is still in time. A socket loses none. Each is a system call for either side,
  // and with a thousand peers they are all that an idle engine does.
  static constexpr uint32_t kHeartbeatsPerTimeout = 2;
  // Where connections carry them in turns: of four one may be lost with a connection, or with the
  // way that some of them take, and another may be late.
  static constexpr uint32_t kSharedPerTimeout = 4;
  // 96 s with the default timeout; 512 bytes in the peer's socket.
  static constexpr uint32_t kMaxUnanswered = 64;
  // All that an honest peer can have sent during any pause of this side, four times over.
  static constexpr uint32_t kMaxFrames = 4 * kMaxUnanswered;

  // Heartbeats to all peers fall on so many moments of an interval (NextBeatNs()).
  static constexpr uint64_t kBeatsTogether = 16;

  // What is to be done now.
  enum class Verdict : uint8_t {
    kNothing = 1,
    kHeartbeat = 2,  // send one
    kSilent = 3,     // the peer is dead: nothing more is to be asked
  };

  // REQUIRES: timeouts are 0 or kMinPeerTimeoutNs..kMaxPeerTimeoutNs; new.
  void Start(uint64_t now_ns, const Terms& terms);

  // From the next heartbeat on: kHeartbeatsPerTimeout, as at first, or kSharedPerTimeout.
  void SetPace(uint32_t per_timeout) { interval_ns_ = smaller_timeout_ns_ / per_timeout; }

  // When OnTime() is to be called next; kNever: nobody asks for heartbeats.
  uint64_t due_ns() const { return due_ns_; }
  // `has_unread()`: whether something from the peer, its end included, waits to be read. It is
  // asked only where the peer would be dead otherwise.
  template <class HasUnread>
  Verdict OnTime(uint64_t now_ns, HasUnread has_unread) {
    if (timeout_ns_ != 0) {
      const bool paused = now_ns - due_ns_ >= timeout_ns_ / 2;
      if (paused) heard_ns_ = now_ns;
      if (now_ns >= heard_ns_ + timeout_ns_) {
        if (!has_unread()) return Verdict::kSilent;
        heard_ns_ = now_ns;
      }
    }
    return Beat(now_ns);
  }

  // Bytes have arrived.
  void OnHeard(uint64_t now_ns) {
    unanswered_ = 0;
    heard_ns_ = now_ns;
  }
  // The next heartbeat is due now.
  void BeatSoon(uint64_t now_ns) {
    next_beat_ns_ = std::min(next_beat_ns_, now_ns);
    SetDue();
  }

  // Frames of one connection, in one interval.
  struct FrameCount {
    uint32_t interval = 0;
    uint32_t frames = 0;
  };
  // A frame has arrived. False: too many.
  [[nodiscard]] bool OnFrame(FrameCount* count) const {
    if (count->interval != interval_) *count = {interval_, 0};
    return ++count->frames <= kMaxFrames;
  }

 private:
  Verdict Beat(uint64_t now_ns);
  uint64_t NextBeatNs(uint64_t now_ns) const;
  void SetDue();

  uint64_t timeout_ns_ = 0;  // of this side; 0: it does not watch
  uint64_t smaller_timeout_ns_ = 0;
  uint64_t interval_ns_ = 0;
  uint64_t heard_ns_ = 0;
  uint64_t next_beat_ns_ = 0;
  uint64_t due_ns_ = kNever;
  uint32_t unanswered_ = 0;
  uint32_t interval_ = 0;  // its number
};

}  // namespace weft
