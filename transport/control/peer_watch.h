// Whether the peer of an open connection is still there: heartbeats in both directions, and the
// silence after which it is declared dead.
//
//   Each side tells in its hello how long the other may be silent (LinkOptions::peer_timeout_ns),
//   and whether it promises heartbeats: only an engine with a thread of its own can. A side watches
//   a peer that promises. Both send a heartbeat each quarter of the smaller timeout.
//
// What keeps it from crying wolf:
//   - It never judges before it has looked: bytes that wait unread in the socket are a sign of
//     life, however long ago they came. So a pause of this side alone (nobody drives, a long
//     handler, a stopped process) proves nothing against the peer.
//   - After such a pause of half the timeout or more the clock starts again: the whole machine may
//     have been paused, and a peer that was not heard in return has stopped sending (below).
//   - Only what the peer promised is held against it.
// What bounds it: at most kMaxUnanswered heartbeats are sent to a peer of which nothing is heard,
//   so that one that nobody drives for days does not fill its socket. A peer that sends more
//   than kMaxFrames frames in one interval breaks the protocol.
//
// No cost for messages: one timer for each connection, a clock reading for each heartbeat.
//
// Threads: one engine's. Lifetime: the wheel, the clock and the host outlive it.
// Errors: none. Invariants: silent for less than the timeout, as far as it was looked at.
#pragma once

#include <cstdint>

#include "core/clock.h"
#include "core/timer_wheel.h"

namespace weft {

class PeerWatch final : private Timer {
 public:
  class Host {
   public:
    virtual void SendHeartbeat() = 0;
    // Something from the peer, its end included, waits to be read.
    virtual bool HasUnread() = 0;
    // The peer is dead. The watch has stopped. From TimerWheel::Advance().
    virtual void OnPeerSilent() = 0;

   protected:
    ~Host() = default;
  };

  struct Terms {
    uint64_t own_timeout_ns = 0;   // 0: this side does not watch
    uint64_t peer_timeout_ns = 0;  // 0: the peer does not watch
    bool peer_promises = false;    // heartbeats
  };

  // Heartbeats in each of the timeouts: two may be lost or late, and a third is still in time.
  static constexpr uint64_t kHeartbeatsPerTimeout = 4;
  // 48 s with the default timeout; 512 bytes in the peer's socket.
  static constexpr uint32_t kMaxUnanswered = 64;
  // All that an honest peer can have sent during any pause of this side, four times over.
  static constexpr uint32_t kMaxFrames = 4 * kMaxUnanswered;

  static constexpr uint64_t kBeatsTogether = 16;

  explicit PeerWatch(Host* host) : host_(host) {}

  // REQUIRES: timeouts are 0 or kMinPeerTimeoutNs..kMaxPeerTimeoutNs; stopped, or new.
  void Start(TimerWheel* timers, const Clock* clock, const Terms& terms);
  void Stop();

  // Bytes have arrived.
  void OnHeard();
  // A frame has arrived. False: too many.
  [[nodiscard]] bool OnFrame() { return ++frames_ <= kMaxFrames; }

  bool watching() const { return timeout_ns_ != 0; }

 private:
  void OnTimer() override;
  // False: the peer is dead.
  bool Judge(uint64_t now_ns);
  void Beat(uint64_t now_ns);
  uint64_t NextBeatNs(uint64_t now_ns) const;
  void ScheduleNext();

  Host* const host_;
  TimerWheel* timers_ = nullptr;
  const Clock* clock_ = nullptr;
  uint64_t timeout_ns_ = 0;  // of this side; 0: it does not watch
  uint64_t interval_ns_ = 0;
  uint64_t heard_ns_ = 0;
  uint64_t next_beat_ns_ = 0;
  uint64_t due_ns_ = 0;  // when the timer was to fire
  uint32_t unanswered_ = 0;
  uint32_t frames_ = 0;  // in this interval
};

}  // namespace weft
