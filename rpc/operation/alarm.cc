#include "rpc/operation/alarm.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/timer_wheel.h"
#include "rpc/operation/on_engine.h"
#include "transport/engine.h"

namespace weft {

class Alarm::State final : public Timer {
 public:
  explicit State(EngineCore& of) : engine(of) {}

  EngineCore& engine;
  Function<void()> then;

 private:
  void OnTimer() override {
    // It may destroy this.
    Function<void()> now = std::exchange(then, nullptr);
    now();
  }
};

Alarm::Alarm(Engine& engine) {
  static_assert(sizeof(State) <= kStateBytes && alignof(State) <= alignof(std::max_align_t));
  new (state_) State(CoreOf(engine));
}

Alarm::~Alarm() {
  Cancel();
  state().~State();
}

Alarm::State& Alarm::state() { return *std::launder(reinterpret_cast<State*>(state_)); }

void Alarm::Set(uint64_t delay_us, Function<void()> then) {
  State& state = this->state();
  RunOnEngine(state.engine, [&] {
    const uint64_t now_ns = state.engine.clock().NowNs();
    const uint64_t most_us = (kNever - 1 - now_ns) / kNsPerUs;
    state.then = std::move(then);
    state.engine.timers().Schedule(&state, now_ns + std::min(delay_us, most_us) * kNsPerUs);
  });
}

bool Alarm::Cancel() {
  State& state = this->state();
  bool was_set = false;
  RunOnEngine(state.engine, [&] {
    was_set = static_cast<bool>(state.then);
    state.engine.timers().Cancel(&state);
    state.then = nullptr;
  });
  return was_set;
}

}  // namespace weft
