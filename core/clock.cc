#include "core/clock.h"

#include <time.h>

#include <memory>

#include "core/check.h"
#include "core/counter_clock.h"

namespace weft {
namespace {

class MonotonicClock final : public Clock {
 public:
  uint64_t NowNs() const override {
    timespec now;
    WEFT_CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerSec + static_cast<uint64_t>(now.tv_nsec);
  }
};

Clock* MakeRealClock() {
  if (std::unique_ptr<Clock> counter = CounterClock::Create()) return counter.release();
  return new MonotonicClock;
}

}  // namespace

Clock& Clock::Real() {
  // Never destroyed: threads may still ask for the time while the process exits.
  static Clock& clock = *MakeRealClock();
  return clock;
}

void FakeClock::Set(uint64_t now_ns) {
  WEFT_CHECK(now_ns >= NowNs());
  now_ns_.store(now_ns, std::memory_order_release);
}

}  // namespace weft
