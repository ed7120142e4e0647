#include "rpc/server/adaptive_limit.h"

#include <algorithm>
#include <cmath>

#include "core/clock.h"

namespace weft {
namespace {

// What one round leaves of the limit at least: the pause of a machine makes all calls of a round
// late, and the limit rises by its root only. A probe is several rounds, and may lower it further.
constexpr double kLeastLeft = 0.1;
// A round looks at so many calls at least: the mean of times that vary as much as they are long
// (exponentially) is then off by an eighth. More: the limit follows later; fewer: it moves by
// chance.
constexpr uint32_t kRoundCalls = 64;
// The same of a round of a probe, while which the workers may have too little to do. Probes add up
// (kOldCalls).
constexpr uint32_t kProbeCalls = 32;
// And for so long at least: a time slice of a busy machine, which is no sign of overload, is a part
// of a round and not all of it.
constexpr uint64_t kShortestRoundNs = 20 * kNsPerMs;
// When no more than a 16th of its calls is missing, a round waits for them for so many times what
// it has taken up to then.
constexpr uint32_t kMissingPart = 16;
constexpr uint64_t kPatience = 2;
// In what is known of a kind alone, earlier probes count as so many calls at most.
constexpr double kOldCalls = 32;
// Calls that are shorter than so much of what they took before have waited less: the limit is
// halved once more. Nearer to 1: chance lengthens probes; lower: calls that waited are taken for
// alone.
constexpr double kShorter = 0.85;
// Between two probes: at least so long, and so many times as long as the last one has taken.
constexpr uint64_t kProbePauseNs = 2 * kNsPerSec;
constexpr uint64_t kPausesOfProbe = 25;
// A round of a probe has half of the calls, and about half of the limit, of the round before it: if
// it takes so many times as long, nobody calls any more.
constexpr uint64_t kProbePatience = 8;
// While every place is taken and calls are refused, some call ends at least so often: in so many
// times of the longest kind's alone, and in so long where nothing is known. Else what holds the
// places does not use workers, or not those of other calls. Shorter: slow calls get more places
// than they have workers, until the next round takes these back.
constexpr uint64_t kStallNs = 100 * kNsPerMs;
constexpr double kStallTimes = 4;
// A round that waits for many of its calls is given up when it has lasted so many times as long as
// the last one, and this long at most.
constexpr uint64_t kRoundPatience = 8;
constexpr uint64_t kLongestRoundNs = 10 * kNsPerSec;
// A call whose deadline passes says that it waited if it has been here for half of its time alone,
// or for so long where that is not known: others have come with a deadline that nobody could meet.
constexpr double kLatePart = 0.5;
constexpr uint64_t kShortestLateNs = kNsPerMs / 10;
// Fewer calls than this part of those that have ended were served: nearly all were late.
constexpr uint32_t kServedPart = 8;

}  // namespace

AdaptiveLimit::AdaptiveLimit(uint32_t least, uint32_t most, size_t kinds)
    : least_(least),
      most_(most),
      limit_(std::clamp(kStart, least, most)),
      exact_limit_(limit_),
      kinds_(kinds) {
  seen_.reserve(kinds);
}

bool AdaptiveLimit::Admit(uint64_t now_ns, uint32_t kind, Ticket* ticket) {
  if (running_ >= limit_ && IsProbeOver(now_ns)) LeaveProbe(now_ns, limit_before_probe_);
  if (running_ >= limit_ && IsStalled(now_ns)) {
    last_end_ns_ = now_ns;
    BeginRound(now_ns, Bounded(exact_limit_ + 1));
  }
  if (running_ >= limit_) {
    if (state_ == State::kResting) {
      state_ = State::kLoaded;
      last_end_ns_ = now_ns;
      BeginRound(now_ns, exact_limit_);
    }
    ++refused_;
    return false;
  }
  ++running_;
  *ticket = {now_ns, 0, kind};
  if (!looks_) return true;
  ticket->round = round_;
  Kind& known = kinds_[kind];
  if (known.pending + known.count == 0) seen_.push_back(kind);
  ++known.pending;
  ++pending_;
  known.pending_from += static_cast<double>(Elapsed(now_ns));
  return true;
}

void AdaptiveLimit::OnEnd(uint64_t now_ns, const Ticket& ticket, End end) {
  --running_;
  last_end_ns_ = now_ns;
  if (IsProbeOver(now_ns)) return LeaveProbe(now_ns, limit_before_probe_);
  if (ticket.round == round_) {
    Kind& kind = kinds_[ticket.kind];
    --kind.pending;
    --pending_;
    kind.pending_from -= static_cast<double>(Elapsed(ticket.admitted_ns));
    if (end == End::kServed && now_ns >= ticket.admitted_ns) {
      ++served_;
      ++kind.count;
      kind.sum += static_cast<double>(now_ns - ticket.admitted_ns);
    }
    expired_ += end == End::kExpired && WasLate(now_ns, ticket);
  }
  if (state_ != State::kResting) LookForEnd(now_ns);
}

bool AdaptiveLimit::WasLate(uint64_t now_ns, const Ticket& ticket) const {
  if (now_ns < ticket.admitted_ns) return false;
  const double alone = kinds_[ticket.kind].alone;
  const double late = alone > 0 ? alone * kLatePart : static_cast<double>(kShortestLateNs);
  return static_cast<double>(now_ns - ticket.admitted_ns) >= late;
}

bool AdaptiveLimit::IsStalled(uint64_t now_ns) const {
  if (state_ != State::kLoaded || now_ns < last_end_ns_ + kStallNs) return false;
  double longest = 0;
  for (const Kind& kind : kinds_) longest = std::max(longest, kind.alone);
  return static_cast<double>(now_ns - last_end_ns_) >= kStallTimes * longest;
}

// --- rounds -------------------------------------------------------------------------------------

double AdaptiveLimit::Bounded(double limit) const { return std::clamp(limit, least_, most_); }

// limit = needed + sqrt(limit).
double AdaptiveLimit::LimitFor(double needed) const {
  const double root = (1 + std::sqrt(1 + 4 * needed)) / 2;
  return Bounded(root * root);
}

void AdaptiveLimit::BeginRound(uint64_t now_ns, double limit) {
  for (const uint32_t seen : seen_) {
    Kind& kind = kinds_[seen];
    kind.sum = kind.pending_from = 0;
    kind.count = kind.pending = 0;
  }
  seen_.clear();
  pending_ = served_ = expired_ = refused_ = 0;
  last_round_ns_ = Elapsed(now_ns);
  if (++round_ == 0) ++round_;
  round_began_ns_ = now_ns;
  waits_until_ns_ = kNever;
  looks_ = state_ != State::kResting;
  exact_limit_ = limit;
  limit_ = static_cast<uint32_t>(limit);
}

// Ends the round if it has seen enough.
void AdaptiveLimit::LookForEnd(uint64_t now_ns) {
  const bool probes = state_ == State::kProbing;
  if (looks_) {
    const uint32_t enough = probes ? kProbeCalls : kRoundCalls;
    looks_ = served_ + expired_ + pending_ < enough || Elapsed(now_ns) < kShortestRoundNs;
  }
  if (looks_) return;
  if (pending_ > 0) {
    if (pending_ > (served_ + expired_) / kMissingPart) {
      const uint64_t usual_ns = std::max(last_round_ns_, kShortestRoundNs);
      if (probes || Elapsed(now_ns) < std::min(kRoundPatience * usual_ns, kLongestRoundNs)) return;
      return BeginRound(now_ns, exact_limit_);
    }
    if (waits_until_ns_ == kNever) waits_until_ns_ = now_ns + kPatience * Elapsed(now_ns);
    if (now_ns < waits_until_ns_) return;
    CountPending(now_ns);
  }
  probes ? EndProbeRound(now_ns) : EndLoaded(now_ns);
}

// As if those that are missing ended now.
void AdaptiveLimit::CountPending(uint64_t now_ns) {
  const auto elapsed = static_cast<double>(Elapsed(now_ns));
  for (const uint32_t seen : seen_) {
    Kind& kind = kinds_[seen];
    kind.sum += std::max(0.0, elapsed * kind.pending - kind.pending_from);
    kind.count += kind.pending;
    served_ += kind.pending;
  }
}

void AdaptiveLimit::EndLoaded(uint64_t now_ns) {
  if (refused_ == 0) {
    state_ = State::kResting;
    return BeginRound(now_ns, exact_limit_);
  }
  if (served_ < (served_ + expired_) / kServedPart) {
    // As few as may be are late as well: it is not the limit that makes them so.
    const bool in_vain = limit_ <= static_cast<uint32_t>(least_);
    return BeginRound(now_ns, Bounded(in_vain ? kStart : exact_limit_ / 2.0));
  }
  double alone = 0;
  double now = 0;
  for (const uint32_t seen : seen_) {
    const Kind& kind = kinds_[seen];
    if (kind.alone == 0) continue;
    alone += kind.alone * kind.count;
    now += kind.sum;
  }
  if (now_ns >= next_probe_ns_) return BeginProbe(now_ns);
  if (alone == 0) return BeginRound(now_ns, exact_limit_);  // until the next probe
  const double gradient = now > 0 ? std::clamp(alone / now, kLeastLeft, 1.0) : 1;
  BeginRound(now_ns, LimitFor(limit_ * gradient));
}

// --- probes -------------------------------------------------------------------------------------

bool AdaptiveLimit::IsProbeOver(uint64_t now_ns) const {
  return state_ == State::kProbing && now_ns >= probe_round_until_ns_;
}

void AdaptiveLimit::BeginProbe(uint64_t now_ns) {
  state_ = State::kProbing;
  probe_began_ns_ = now_ns;
  limit_before_probe_ = exact_limit_;
  shortened_ = 1;
  BeginProbeRound(now_ns);
}

// With half of the last round's limit.
void AdaptiveLimit::BeginProbeRound(uint64_t now_ns) {
  for (Kind& kind : kinds_) kind.before = 0;
  for (const uint32_t seen : seen_) {
    Kind& kind = kinds_[seen];
    if (kind.count > 0) kind.before = kind.sum / kind.count;
  }
  probe_round_until_ns_ = now_ns + kProbePatience * std::max(Elapsed(now_ns), kShortestRoundNs);
  BeginRound(now_ns, Bounded(limit_ / 2.0));
}

void AdaptiveLimit::EndProbeRound(uint64_t now_ns) {
  double before = 0;
  double now = 0;
  for (const uint32_t seen : seen_) {
    const Kind& kind = kinds_[seen];
    if (kind.before == 0) continue;
    before += kind.before * kind.count;
    now += kind.sum;
  }
  const double ratio = before > 0 ? now / before : 1;
  shortened_ *= std::min(ratio, 1.0);
  if (ratio < kShorter && limit_ > static_cast<uint32_t>(least_)) return BeginProbeRound(now_ns);
  for (const uint32_t seen : seen_) {
    Kind& kind = kinds_[seen];
    if (kind.count == 0) continue;
    const double old_calls = kind.alone > 0 ? kOldCalls : 0;
    kind.alone = (kind.alone * old_calls + kind.sum) / (old_calls + kind.count);
  }
  LeaveProbe(now_ns, LimitFor(std::floor(limit_before_probe_) * shortened_));
}

void AdaptiveLimit::LeaveProbe(uint64_t now_ns, double limit) {
  const uint64_t took_ns = now_ns > probe_began_ns_ ? now_ns - probe_began_ns_ : 0;
  next_probe_ns_ = now_ns + std::max(kProbePauseNs, kPausesOfProbe * took_ns);
  state_ = State::kLoaded;
  BeginRound(now_ns, limit);
}

}  // namespace weft
