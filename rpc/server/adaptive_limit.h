// How many calls may run at once, found out while they run: enough for every worker to be busy, and
// few enough that none waits for long. Nothing is known of the workers: how many they are, how long
// they take, and what they do.
//
// A call that finds every worker busy waits, and so takes longer than it would alone. The limit
// follows the ratio of the two times (the "gradient" of Netflix' concurrency-limits and of Envoy;
// brpc's limiter has the same two measurements):
//
//   limit = needed + sqrt(limit), where needed = limit before * min(1, alone / now)
//
// With k workers that take equally long, `now` is alone * limit / k, and so k are needed: the limit
// is 2 for one worker, 6 for 4, 57 for 50. The root keeps the workers busy between one call's end
// and the next one's arrival, and lets the limit explore: it grows while calls do not wait.
//
// The time alone is measured by a probe, for a server that is overloaded from its start on has
// never seen it. A probe halves the limit for a few calls, and again, as long as that makes them
// shorter. It is made when the limit is in the way of calls, and then once in kProbePauseNs, or
// less often where it takes long. It costs a server of k workers less than half of its work, in a
// 25th of the time at most.
//
// Each kind of call (a method) has its times of its own: what is compared is the sum of the times
// of some calls with what the same calls, kind by kind, would have taken alone. So it does not
// matter that the one takes a thousand times as long as the other, and which of them come.
//
// What teaches: calls that were served. Calls that were cancelled or that failed say nothing of how
// long they would have taken, and change nothing. Calls that ended after their deadlines change
// something only if nearly all do: the limit is halved; and those that came with a deadline that
// nobody could meet do not count for that. While no call is refused the limit stays as it is.
//
// Calls that hold their places and do not end, as a hostile client's may, do not stop it: where all
// places are taken and none has become free for long, there is one place more, and again.
//
//   state     from                           to
//   kResting  construction; a round without  -> kLoaded: a call is refused
//             a refusal
//   kLoaded   a call is refused              -> itself: the round's end moves the limit
//                                            -> kProbing: a round's end, and a probe is due
//                                            -> kResting: a round's end, and none was refused
//   kProbing  a probe is due                 -> kLoaded: the calls are not shorter than before, or
//                                               the limit was the least; or they did not come in
//                                               time, and the limit is as it was
//
// A round is the time for which the limit stays. It looks at the first calls that are admitted in
// it, and ends when all of them have ended: the first ones to end would be the shortest. For a few
// that do not end, it does not wait.
//
// Threads: one at a time. Lifetime: of calls, none: REQUIRES: each one admitted ends once.
// Errors: none. A clock that goes backwards costs the samples that show it.
// Invariants: least <= limit() <= most; running() <= the highest limit() since running() was 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

class AdaptiveLimit {
 public:
  // Where it begins, on each engine of a server, if the bounds allow it. Higher: of a server with
  // one worker that is overloaded from its start on, more calls are late until the first probe.
  // Lower: one with many refuses more of the first ones. From here it takes seven rounds to 60, and
  // a probe to 2.
  static constexpr uint32_t kStart = 20;

  // How a call has ended.
  enum class End : uint8_t {
    kServed = 1,   // its handler has run, and succeeded
    kExpired = 2,  // its deadline has passed
    kOther = 3,    // cancelled, or an error
  };

  // What is kept of a call that was admitted, until its end.
  struct Ticket {
    uint64_t admitted_ns = 0;
    uint32_t round = 0;
    uint32_t kind = 0;
  };

  // Of calls of kinds 0, 1, ... `kinds` - 1. REQUIRES: 1 <= least <= most.
  AdaptiveLimit(uint32_t least, uint32_t most, size_t kinds);

  uint32_t limit() const { return limit_; }
  uint32_t running() const { return running_; }

  // Whether a call may run; then it counts until its OnEnd(). REQUIRES: kind < kinds.
  bool Admit(uint64_t now_ns, uint32_t kind, Ticket* ticket);
  // `end`: of the call of that ticket.
  void OnEnd(uint64_t now_ns, const Ticket& ticket, End end);

 private:
  enum class State : uint8_t { kResting = 1, kLoaded = 2, kProbing = 3 };

  // Times are in ns; `alone` and `before` are means, 0: not known.
  struct Kind {
    double alone = 0;   // by probes
    double before = 0;  // in the round before this one, for a probe to compare with
    // Of the calls that this round looks at.
    double sum = 0;           // of `count` that were served
    double pending_from = 0;  // sum of when, in the round, `pending` were admitted
    uint32_t count = 0;
    uint32_t pending = 0;
  };

  void BeginRound(uint64_t now_ns, double limit);
  void LookForEnd(uint64_t now_ns);
  void CountPending(uint64_t now_ns);
  void EndLoaded(uint64_t now_ns);
  void BeginProbe(uint64_t now_ns);
  void BeginProbeRound(uint64_t now_ns);
  void EndProbeRound(uint64_t now_ns);
  void LeaveProbe(uint64_t now_ns, double limit);
  bool IsProbeOver(uint64_t now_ns) const;
  // The call, whose deadline has passed, has waited.
  bool WasLate(uint64_t now_ns, const Ticket& ticket) const;
  // Calls are refused, and none has ended for long.
  bool IsStalled(uint64_t now_ns) const;
  double LimitFor(double needed) const;
  double Bounded(double limit) const;
  uint64_t Elapsed(uint64_t now_ns) const {
    return now_ns > round_began_ns_ ? now_ns - round_began_ns_ : 0;
  }

  // Constant after construction.
  const double least_;
  const double most_;

  uint32_t limit_;  // of exact_limit_, its whole part
  uint32_t running_ = 0;
  double exact_limit_;
  State state_ = State::kResting;
  uint64_t last_end_ns_ = 0;    // of any call, or when the first was refused
  uint64_t last_round_ns_ = 0;  // how long the last round was

  // Of the present round.
  uint32_t round_ = 1;  // never 0, which is of calls that no round looks at
  uint64_t round_began_ns_ = 0;
  bool looks_ = false;    // at those that are admitted now
  uint32_t pending_ = 0;  // of those that it looks at: have not ended
  uint32_t served_ = 0;   // the same: have ended so
  uint32_t expired_ = 0;
  uint32_t refused_ = 0;
  uint64_t waits_until_ns_ = 0;  // for the last of them
  std::vector<Kind> kinds_;
  std::vector<uint32_t> seen_;  // kinds that this round looks at; never more than there are

  // Of probes.
  uint64_t next_probe_ns_ = 0;
  uint64_t probe_began_ns_ = 0;
  uint64_t probe_round_until_ns_ = 0;
  double limit_before_probe_ = 0;
  double shortened_ = 1;  // to so much of their time before, by the rounds of this probe
};

}  // namespace weft
