#include "rpc/operation/alarm.h"

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
  if (state().engine.forked()) return;  // the parent's: it stays as it is, in the wheel too
  Cancel();
  state().~State();
}

Alarm::State& Alarm::state() { return *std::launder(reinterpret_cast<State*>(state_)); }

void Alarm::Set(uint64_t delay_us, Function<void()> then) {
  State& state = this->state();
  RunOnEngine(state.engine, [&] {
    state.then = std::move(then);
    ScheduleIn(state.engine, state, delay_us);
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
