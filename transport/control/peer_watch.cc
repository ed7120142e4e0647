#include "transport/control/peer_watch.h"

#include <algorithm>

namespace weft {

void PeerWatch::Start(uint64_t now_ns, const Terms& terms) {
  timeout_ns_ = terms.peer_promises ? terms.own_timeout_ns : 0;
  if (timeout_ns_ == 0 && terms.peer_timeout_ns == 0) return;
  // 0 means never: 0 - 1 is the largest number.
  smaller_timeout_ns_ = std::min(terms.own_timeout_ns - 1, terms.peer_timeout_ns - 1) + 1;
  SetPace(kHeartbeatsPerTimeout);
  heard_ns_ = now_ns;
  next_beat_ns_ = NextBeatNs(now_ns);
  SetDue();
}

// Up to a sixteenth early, so that those to many peers come together: an engine that sleeps is
// woken sixteen times in an interval, not once for each peer.
uint64_t PeerWatch::NextBeatNs(uint64_t now_ns) const {
  const uint64_t next_ns = now_ns + interval_ns_;
  return next_ns - next_ns % (interval_ns_ / kBeatsTogether);
}

PeerWatch::Verdict PeerWatch::Beat(uint64_t now_ns) {
  bool send = false;
  if (now_ns >= next_beat_ns_) {
    next_beat_ns_ = NextBeatNs(now_ns);
    ++interval_;
    send = unanswered_ < kMaxUnanswered;
    if (send) ++unanswered_;
  }
  SetDue();
  return send ? Verdict::kHeartbeat : Verdict::kNothing;
}

// A deadline that OnHeard() has moved meanwhile is found to be early when it comes.
void PeerWatch::SetDue() {
  due_ns_ = timeout_ns_ != 0 ? std::min(next_beat_ns_, heard_ns_ + timeout_ns_) : next_beat_ns_;
}

}  // namespace weft
