// What happens while a test waits, by an engine's clock: once at a time, or again and again at
// random times.
#pragma once

#include <cstdint>
#include <utility>

#include "core/clock.h"
#include "core/function.h"
#include "core/random.h"
#include "core/timer_wheel.h"
#include "transport/engine.h"

namespace weft::test {

// Once, on the engine of one machine, unless it is destroyed before.
class At final : public Timer {
 public:
  At(Engine& engine, uint64_t after_ns, Function<void()> then) : then_(std::move(then)) {
    EngineCore& core = CoreOf(engine);
    core.timers().Schedule(this, core.clock().NowNs() + after_ns);
  }

 private:
  void OnTimer() override { then_(); }

  Function<void()> then_;
};

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
