#include "core/clock.h"

#include <time.h>

#include <memory>

#include "core/check.h"
#include "core/counter_clock.h"
#include "core/process_wide.h"

namespace weft {
namespace {

class MonotonicClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    timespec now;
    // System: has this clock, and it is there for everybody
    WEFT_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSec + static_cast<uint64_t>(now.tv_nsec);
  }
};

std::unique_ptr<Clock> MakeRealClock() {
  if (std::unique_ptr<Clock> counter = CounterClock::Create()) return counter;
  return std::make_unique<MonotonicClock>();
}

}  // namespace

Clock& Clock::Real() {
  static constinit ProcessWide<Clock> clock;
  return clock.Get(MakeRealClock);
}

void FakeClock::Set(uint64_t now_ns) {
  WEFT_CHECK(now_ns >= NowNs());  // User: a test, which moves its clock forwards
  now_ns_.store(now_ns, std::memory_order_release);
}

}  // namespace weft
