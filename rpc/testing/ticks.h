// Something that happens again and again while a test waits, at random times of a simulated
// network.
#pragma once

#include <utility>

#include "core/clock.h"
#include "core/function.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "transport/engine.h"

namespace weft::test {

// On the engine of one machine, from now until it is destroyed; once in a millisecond or oftener.
class Ticks final : public Timer {
 public:
  Ticks(Engine& engine, Random* random, Function<void()> tick)
      : engine_(CoreOf(engine)), random_(*random), tick_(std::move(tick)) {
    Plan();
  }

 private:
  void OnTimer() override {
    tick_();
    Plan();
  }
  void Plan() {
    engine_.timers().Schedule(this, engine_.clock().NowNs() + random_.Uniform(kNsPerMs));
  }

  EngineCore& engine_;
  Random& random_;
  Function<void()> tick_;
};

}  // namespace weft::test
