#include "transport/control/peer_watch.h"

#include <algorithm>

namespace weft {

void PeerWatch::Start(TimerWheel* timers, const Clock* clock, const Terms& terms) {
  timers_ = timers;
  clock_ = clock;
  timeout_ns_ = terms.peer_promises ? terms.own_timeout_ns : 0;
  if (timeout_ns_ == 0 && terms.peer_timeout_ns == 0) return;
  // 0 means never: 0 - 1 is the largest number.
  const uint64_t smaller_ns = std::min(terms.own_timeout_ns - 1, terms.peer_timeout_ns - 1) + 1;
  interval_ns_ = smaller_ns / kHeartbeatsPerTimeout;
  heard_ns_ = clock_->NowNs();
  next_beat_ns_ = NextBeatNs(heard_ns_);
  unanswered_ = frames_ = 0;
  ScheduleNext();
}

void PeerWatch::Stop() {
  if (timers_ != nullptr) timers_->Cancel(this);
}

void PeerWatch::OnHeard() {
  unanswered_ = 0;
  if (watching()) heard_ns_ = clock_->NowNs();
}

void PeerWatch::OnTimer() {
  const uint64_t now_ns = clock_->NowNs();
  if (watching() && !Judge(now_ns)) return host_->OnPeerSilent();
  if (now_ns >= next_beat_ns_) Beat(now_ns);
  ScheduleNext();
}

// Up to a sixteenth early, so that those of many connections come together: an engine that sleeps
// is woken sixteen times in an interval, not once for each connection.
uint64_t PeerWatch::NextBeatNs(uint64_t now_ns) const {
  const uint64_t next_ns = now_ns + interval_ns_;
  return next_ns - next_ns % (interval_ns_ / kBeatsTogether);
}

bool PeerWatch::Judge(uint64_t now_ns) {
  const bool paused = now_ns - due_ns_ >= timeout_ns_ / 2;
  if (!paused && now_ns < heard_ns_ + timeout_ns_) return true;
  if (!paused && !host_->HasUnread()) return false;
  heard_ns_ = now_ns;
  return true;
}

void PeerWatch::Beat(uint64_t now_ns) {
  next_beat_ns_ = NextBeatNs(now_ns);
  frames_ = 0;
  if (unanswered_ == kMaxUnanswered) return;
  ++unanswered_;
  host_->SendHeartbeat();
}

// A deadline that OnHeard() has moved meanwhile is found to be early when it comes.
void PeerWatch::ScheduleNext() {
  due_ns_ = watching() ? std::min(next_beat_ns_, heard_ns_ + timeout_ns_) : next_beat_ns_;
  timers_->Schedule(this, due_ns_);
}

}  // namespace weft
