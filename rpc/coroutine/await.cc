#include "rpc/coroutine/await.h"

#include <cstddef>
#include <new>

#include "core/check.h"
#include "core/timer_wheel.h"
#include "rpc/operation/on_engine.h"
#include "transport/engine.h"

namespace weft::internal {

void PostResumption(Engine& engine, std::coroutine_handle<> coroutine) {
  if (CoreOf(engine).forked()) return coroutine.resume();  // it finds that out by itself
  PostOrDrive(CoreOf(engine), coroutine);
}

class SleepAwaiter::State final : public Timer {
 public:
  explicit State(Resumption* resumption) : resumption_(resumption) {}

 private:
  void OnTimer() override { (*resumption_)(); }

  Resumption* const resumption_;
};

SleepAwaiter::SleepAwaiter(Engine& engine, uint64_t delay_us)
    : engine_(engine), delay_us_(delay_us), timer_(new (state_) State(&resumption_)) {
  static_assert(sizeof(State) <= kStateBytes && alignof(State) <= alignof(std::max_align_t));
}

SleepAwaiter::~SleepAwaiter() {
  if (!CoreOf(engine_).forked()) timer_->~State();
}

void SleepAwaiter::Schedule() {
  EngineCore& engine = CoreOf(engine_);
  if (engine.forked()) return resumption_();  // time does not pass for it
  if (engine.OnEngine()) return ScheduleIn(engine, *timer_, delay_us_);
  PostOrDrive(engine, [this, &engine] { ScheduleIn(engine, *timer_, delay_us_); });
}

bool EngineAwaiter::OnEngine() const { return engine_.OnEngine(); }

struct EndSignal::State {
  explicit State(EngineCore& of) : engine(of) {}

  EngineCore& engine;
  Waiter waiter;
};

EndSignal::EndSignal(Engine& engine) : state_(std::make_unique<State>(CoreOf(engine))) {}

EndSignal::~EndSignal() = default;

void EndSignal::Ended() {
  EngineCore& engine = state_->engine;
  Waiter& waiter = state_->waiter;
  if (engine.OnEngine()) return engine.Finish(waiter);
  PostOrDrive(engine, [&engine, &waiter] { engine.Finish(waiter); });
}

void EndSignal::Wait() {
  WEFT_CHECK(!state_->engine.InTurn());  // User: blocks, so not inside a callback
  state_->engine.Wait(state_->waiter);
}

}  // namespace weft::internal
