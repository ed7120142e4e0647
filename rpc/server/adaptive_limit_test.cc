// What an adaptive limit promises, on workers and callers that are simulated: nothing here depends
// on the machine's time, and each run is the same.
#include "rpc/server/adaptive_limit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "core/clock.h"
#include "core/random.h"

namespace weft {
namespace {

using Ticket = AdaptiveLimit::Ticket;
using End = AdaptiveLimit::End;

constexpr uint32_t kMost = 4096;
constexpr uint64_t kMs = kNsPerMs;

// What callers have seen between two moments. Times are of calls that were served in time.
struct Seen {
  uint64_t served = 0;
  uint64_t refused = 0;
  uint64_t late = 0;
  double work_ns = 0;
  std::vector<uint64_t> times_ns;

  uint64_t P99() {
    if (times_ns.empty()) return 0;
    std::sort(times_ns.begin(), times_ns.end());
    return times_ns[times_ns.size() * 99 / 100];
  }
};

// Callers that do not wait for each other, `workers` that take calls in their order, and the limit
// between them.
class Workload {
 public:
  uint32_t workers = 4;
  double load = 3;  // of what the workers can do
  uint64_t deadline_ns = kNever;
  // How long the next call takes, in ns, and of which kind it is.
  std::function<double(Random&, uint32_t* kind)> work = Fixed(1 * kMs);
  double mean_work_ns = 1 * kMs;
  // How a call ends that has run in time, and for so long.
  std::function<End(double work_ns)> end = [](double) { return End::kServed; };

  explicit Workload(uint64_t seed, uint32_t least = 1, uint32_t most = kMost)
      : limit(least, most, /*kinds=*/2), random_(seed) {}

  static std::function<double(Random&, uint32_t*)> Fixed(uint64_t ns) {
    return [ns](Random&, uint32_t*) { return static_cast<double>(ns); };
  }
  static double Exponential(Random& random, double mean) {
    return -std::log(1 - random.UniformDouble()) * mean;
  }

  Seen Run(uint64_t for_ns) {
    Seen seen;
    const uint64_t until_ns = now_ns + for_ns;
    while (now_ns < until_ns) {
      if (!ends_.empty() && ends_.top().ends_ns <= next_ns_) {
        Finish(seen);
      } else {
        Arrive(seen);
      }
    }
    return seen;
  }

  AdaptiveLimit limit;
  uint64_t now_ns = kNsPerSec;

 private:
  struct Call {
    Ticket ticket;
    double work_ns = 0;
    uint64_t ends_ns = 0;
    bool operator>(const Call& other) const { return ends_ns > other.ends_ns; }
  };

  void Arrive(Seen& seen) {
    now_ns = std::max(now_ns, next_ns_);
    next_ns_ =
        now_ns + 1 + static_cast<uint64_t>(Exponential(random_, mean_work_ns / (load * workers)));
    Call call;
    uint32_t kind = 0;
    call.work_ns = work(random_, &kind);
    if (!limit.Admit(now_ns, kind, &call.ticket)) {
      ++seen.refused;
    } else {
      queue_.push_back(call);
      StartSome(seen);
    }
  }

  void StartSome(Seen& seen) {
    while (busy_ < workers && !queue_.empty()) {
      Call call = queue_.front();
      queue_.pop_front();
      if (now_ns - call.ticket.admitted_ns > deadline_ns) {  // nobody waits for it any more
        ++seen.late;
        limit.OnEnd(now_ns, call.ticket, End::kExpired);
        continue;
      }
      ++busy_;
      call.ends_ns = now_ns + static_cast<uint64_t>(call.work_ns);
      ends_.push(call);
    }
  }

  void Finish(Seen& seen) {
    const Call call = ends_.top();
    ends_.pop();
    now_ns = call.ends_ns;
    --busy_;
    const uint64_t took_ns = now_ns - call.ticket.admitted_ns;
    const bool in_time = took_ns <= deadline_ns;
    const End how = in_time ? end(call.work_ns) : End::kExpired;
    limit.OnEnd(now_ns, call.ticket, how);
    seen.late += in_time ? 0 : 1;
    if (how == End::kServed) {
      ++seen.served;
      seen.work_ns += call.work_ns;
      seen.times_ns.push_back(took_ns);
    }
    StartSome(seen);
  }

  Random random_;
  uint64_t next_ns_ = 0;
  uint32_t busy_ = 0;
  std::deque<Call> queue_;
  std::priority_queue<Call, std::vector<Call>, std::greater<>> ends_;
};

// The part of what the workers could have done that they have done.
double Goodput(const Workload& workload, const Seen& seen, uint64_t ns) {
  return seen.work_ns / (static_cast<double>(ns) * workload.workers);
}

// --- overload -----------------------------------------------------------------------------------

class Overload : public testing::TestWithParam<uint32_t> {};

TEST_P(Overload, OfEqualCallsLeavesGoodputAndTimes) {
  Workload workload(/*seed=*/GetParam());
  workload.workers = GetParam();
  workload.Run(1 * kNsPerSec);
  Seen seen = workload.Run(3 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 3 * kNsPerSec), 0.95);
  EXPECT_LE(seen.P99(), 3 * kMs);
  EXPECT_GT(seen.refused, seen.served);
}

TEST_P(Overload, OfCallsThatDifferLeavesGoodputAndTimes) {
  Workload workload(/*seed=*/GetParam());
  workload.workers = GetParam();
  workload.work = [](Random& random, uint32_t*) { return Workload::Exponential(random, 1 * kMs); };
  workload.Run(1 * kNsPerSec);
  Seen seen = workload.Run(3 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 3 * kNsPerSec), 0.9);
  const double alone_p99_ns = std::log(100.0) * kMs;
  EXPECT_LE(static_cast<double>(seen.P99()), 3 * alone_p99_ns);
}

INSTANTIATE_TEST_SUITE_P(Workers, Overload, testing::Values(1, 2, 3, 4, 8, 16, 50));

TEST(AdaptiveLimit, ShortCallsDoNotHideThatLongOnesWait) {
  // Nine of ten calls take a hundredth of the tenth's time: the mean of all says little.
  Workload workload(/*seed=*/1);
  workload.workers = 8;
  workload.mean_work_ns = 0.109 * 10 * kMs;
  workload.work = [](Random& random, uint32_t* kind) {
    *kind = random.Chance(0.1) ? 1 : 0;
    return *kind == 1 ? 10.0 * kMs : 0.1 * kMs;
  };
  workload.Run(2 * kNsPerSec);
  Seen seen = workload.Run(6 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 6 * kNsPerSec), 0.9);
  EXPECT_LE(seen.P99(), 30 * kMs);
}

// A queue of one call leaves a single worker idle now and then, if it is a short one.
TEST(AdaptiveLimit, OneWorkerOfShortAndLongCallsDoesMostOfWhatItCan) {
  for (const uint32_t least : {1, 8}) {
    Workload workload(/*seed=*/14, least);
    workload.workers = 1;
    workload.mean_work_ns = 0.109 * 10 * kMs;
    workload.work = [](Random& random, uint32_t* kind) {
      *kind = random.Chance(0.1) ? 1 : 0;
      return Workload::Exponential(random, *kind == 1 ? 10.0 * kMs : 0.1 * kMs);
    };
    workload.Run(10 * kNsPerSec);
    const Seen seen = workload.Run(40 * kNsPerSec);
    EXPECT_GE(Goodput(workload, seen, 40 * kNsPerSec), least == 1 ? 0.75 : 0.9) << least;
  }
}

TEST(AdaptiveLimit, FollowsTheNumberOfWorkers) {
  Workload workload(/*seed=*/2);
  for (const uint32_t workers : {16, 4, 16}) {
    workload.workers = workers;
    workload.Run(4 * kNsPerSec);
    Seen seen = workload.Run(2 * kNsPerSec);
    EXPECT_GE(Goodput(workload, seen, 2 * kNsPerSec), 0.9) << workers;
    EXPECT_LE(seen.P99(), 3 * kMs) << workers;
  }
}

TEST(AdaptiveLimit, FollowsHowLongCallsTake) {
  Workload workload(/*seed=*/3);
  for (const uint64_t work_ns : {1 * kMs, 5 * kMs, 1 * kMs}) {
    workload.work = Workload::Fixed(work_ns);
    workload.mean_work_ns = static_cast<double>(work_ns);
    workload.Run(20 * kNsPerSec);
    Seen seen = workload.Run(5 * kNsPerSec);
    EXPECT_GE(Goodput(workload, seen, 5 * kNsPerSec), 0.9) << work_ns;
    EXPECT_LE(seen.P99(), 3 * work_ns) << work_ns;
  }
}

TEST(AdaptiveLimit, RefusesNothingOfWhatTheWorkersCanDo) {
  Workload workload(/*seed=*/4);
  workload.workers = 8;
  workload.load = 0.5;
  const Seen seen = workload.Run(10 * kNsPerSec);
  EXPECT_EQ(seen.refused, 0u);
  EXPECT_EQ(workload.limit.limit(), AdaptiveLimit::kStart);
}

TEST(AdaptiveLimit, StaysWithinItsBounds) {
  Workload few(/*seed=*/5, /*least=*/1, /*most=*/3);
  few.Run(1 * kNsPerSec);
  EXPECT_LE(few.limit.limit(), 3u);
  Workload many(/*seed=*/6, /*least=*/100, /*most=*/200);
  EXPECT_EQ(many.limit.limit(), 100u);
  many.Run(1 * kNsPerSec);
  EXPECT_GE(many.limit.limit(), 100u) << "while it probes as well";
}

// --- what teaches nothing -----------------------------------------------------------------------

TEST(AdaptiveLimit, CancelledCallsDoNotHideThatOthersWait) {
  // Nineteen of twenty calls are cancelled at once. As calls that were served in no time they would
  // raise the limit to its most, and the twentieth would wait for thousands of its like.
  Workload workload(/*seed=*/7);
  workload.mean_work_ns = 0.05 * kMs;
  workload.work = [](Random& random, uint32_t*) { return random.Chance(0.95) ? 0 : 1.0 * kMs; };
  workload.end = [](double work_ns) { return work_ns == 0 ? End::kOther : End::kServed; };
  workload.Run(2 * kNsPerSec);
  Seen seen = workload.Run(3 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 3 * kNsPerSec), 0.9);
  EXPECT_LE(seen.P99(), 3 * kMs);
  EXPECT_LT(workload.limit.limit(), kMost / 10);
}

TEST(AdaptiveLimit, ALimitThatOnlyFailedCallsMeetStays) {
  Workload workload(/*seed=*/8);
  workload.Run(1 * kNsPerSec);
  workload.end = [](double) { return End::kOther; };
  workload.Run(500 * kMs);  // a probe that is under way is given up
  const uint32_t before = workload.limit.limit();
  workload.Run(5 * kNsPerSec);
  EXPECT_EQ(workload.limit.limit(), before);
}

TEST(AdaptiveLimit, AClockThatGoesBackwardsTeachesNothing) {
  AdaptiveLimit limit(1, kMost, 1);
  uint64_t now_ns = kNsPerSec;
  for (int i = 0; i < 100'000; ++i) {
    Ticket ticket;
    now_ns += 10'000;
    std::vector<Ticket> tickets;
    while (limit.Admit(now_ns, 0, &ticket)) tickets.push_back(ticket);
    ASSERT_FALSE(tickets.empty());
    // Ended before they began: as a difference without sign that is 584 years.
    for (const Ticket& one : tickets) limit.OnEnd(now_ns - 5'000, one, End::kServed);
    ASSERT_EQ(limit.running(), 0u);
  }
  EXPECT_EQ(limit.limit(), AdaptiveLimit::kStart);
}

// --- what must not hold it up --------------------------------------------------------------------

TEST(AdaptiveLimit, AProbeAndItsCallsInOneMomentAreNoTrouble) {
  // Everything happens in one turn of the engine, whose clock stands still: rounds and probes of no
  // length. The limit was found at 1 for ever.
  AdaptiveLimit limit(1, kMost, 1);
  uint64_t now_ns = kNsPerSec;
  for (int turn = 0; turn < 2'000; ++turn) {
    now_ns += turn % 2 == 0 ? 21 * kMs : 0;
    std::vector<Ticket> tickets;
    for (int i = 0; i < 200; ++i) {
      Ticket ticket;
      if (limit.Admit(now_ns, 0, &ticket)) tickets.push_back(ticket);
    }
    for (const Ticket& ticket : tickets) limit.OnEnd(now_ns, ticket, End::kServed);
  }
  EXPECT_GE(limit.limit(), AdaptiveLimit::kStart);
  EXPECT_EQ(limit.running(), 0u);
}

TEST(AdaptiveLimit, ALimitOfOneGrowsAgain) {
  Workload workload(/*seed=*/9);
  workload.workers = 1;
  workload.Run(5 * kNsPerSec);
  ASSERT_LE(workload.limit.limit(), 3u);
  workload.workers = 50;
  workload.Run(3 * kNsPerSec);
  const Seen seen = workload.Run(1 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 1 * kNsPerSec), 0.9);
}

TEST(AdaptiveLimit, AProbeThatNobodyCallsInIsGivenUp) {
  Workload workload(/*seed=*/10);
  workload.workers = 16;
  workload.Run(1 * kNsPerSec);
  const uint32_t usual = workload.limit.limit();
  // Up to the middle of a probe.
  for (int i = 0; i < 5000 && workload.limit.limit() > usual / 2 + 1; ++i) workload.Run(1 * kMs);
  ASSERT_LE(workload.limit.limit(), usual / 2 + 1);
  workload.load = 0.001;
  workload.Run(10 * kNsPerSec);
  EXPECT_GE(workload.limit.limit(), usual - 5);
}

TEST(AdaptiveLimit, CallsThatDoNotEndDoNotHoldItUp) {
  Workload workload(/*seed=*/11);
  workload.workers = 8;
  std::vector<Ticket> held(3);
  for (Ticket& ticket : held) ASSERT_TRUE(workload.limit.Admit(workload.now_ns, 0, &ticket));
  workload.Run(1 * kNsPerSec);
  // And some that begin while calls are looked at.
  for (int i = 0; i < 3; ++i) {
    Ticket ticket;
    while (!workload.limit.Admit(workload.now_ns, 0, &ticket)) workload.Run(1 * kMs / 10);
    held.push_back(ticket);
  }
  workload.Run(2 * kNsPerSec);
  Seen seen = workload.Run(2 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 2 * kNsPerSec), 0.9);
  EXPECT_LE(seen.P99(), 3 * kMs);
  for (const Ticket& ticket : held) workload.limit.OnEnd(workload.now_ns, ticket, End::kOther);
}

// One client made the limit small and then held the last place with a call of a minute: everybody
// else was refused for that minute, by a server with 31 idle workers.
TEST(AdaptiveLimit, WhoHoldsTheLastPlaceDoesNotKeepTheOthersOut) {
  Workload workload(/*seed=*/14);
  workload.workers = 1;
  workload.Run(5 * kNsPerSec);
  std::vector<Ticket> held(workload.limit.limit());
  for (Ticket& ticket : held) {
    while (!workload.limit.Admit(workload.now_ns, 0, &ticket)) workload.Run(1 * kMs / 10);
  }
  workload.workers = 32;
  workload.Run(5 * kNsPerSec);
  const Seen seen = workload.Run(2 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 2 * kNsPerSec), 0.9);
  for (const Ticket& ticket : held) workload.limit.OnEnd(workload.now_ns, ticket, End::kOther);
}

// --- deadlines ----------------------------------------------------------------------------------

TEST(AdaptiveLimit, AnIdleServerTakesCallsWhoseDeadlinesAreTooShort) {
  AdaptiveLimit limit(1, kMost, 1);
  uint64_t now_ns = kNsPerSec;
  for (int i = 0; i < 10'000; ++i) {
    Ticket ticket;
    now_ns += 10 * kMs;
    ASSERT_TRUE(limit.Admit(now_ns, 0, &ticket)) << i;
    now_ns += 1 * kMs;
    limit.OnEnd(now_ns, ticket, End::kExpired);
  }
  EXPECT_EQ(limit.limit(), AdaptiveLimit::kStart);
}

// A client's calls with deadlines of a microsecond halved the limit as if the server were late.
TEST(AdaptiveLimit, CallsThatComeWithoutTimeDoNotLowerIt) {
  Workload workload(/*seed=*/15);
  workload.workers = 16;
  workload.Run(2 * kNsPerSec);
  Seen seen;
  for (int i = 0; i < 20'000; ++i) {
    for (int call = 0; call < 1'000; ++call) {
      Ticket ticket;
      if (!workload.limit.Admit(workload.now_ns, 0, &ticket)) break;
      workload.limit.OnEnd(workload.now_ns + 1'000, ticket, End::kExpired);
    }
    seen.work_ns += workload.Run(1 * kMs / 10).work_ns;
  }
  EXPECT_GE(Goodput(workload, seen, 2 * kNsPerSec), 0.9);
}

TEST(AdaptiveLimit, CallsThatAreAllLateLowerItAndDoNotKeepItLow) {
  // No limit lets any of them end in time: then it is no use to refuse them.
  Workload workload(/*seed=*/12);
  workload.deadline_ns = kMs / 2;
  uint32_t lowest = kMost;
  uint32_t highest = 0;
  for (int i = 0; i < 2'000; ++i) {
    workload.Run(1 * kMs);
    lowest = std::min(lowest, workload.limit.limit());
    if (i > 1'000) highest = std::max(highest, workload.limit.limit());
  }
  EXPECT_EQ(lowest, 1u);
  EXPECT_GE(highest, AdaptiveLimit::kStart);
  workload.deadline_ns = 10 * kMs;
  workload.Run(3 * kNsPerSec);
  const Seen seen = workload.Run(1 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 1 * kNsPerSec), 0.9);
}

TEST(AdaptiveLimit, AQueueThatMakesAllCallsLateIsShortened) {
  // One worker, and a queue of 20: whoever has waited is thrown away just before the deadline, or
  // just after it has run.
  Workload workload(/*seed=*/13);
  workload.workers = 1;
  workload.deadline_ns = 5 * kMs / 2;
  workload.Run(2 * kNsPerSec);
  const Seen seen = workload.Run(2 * kNsPerSec);
  EXPECT_GE(Goodput(workload, seen, 2 * kNsPerSec), 0.9);
}

}  // namespace
}  // namespace weft
