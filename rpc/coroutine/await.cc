#include "rpc/coroutine/await.h"

#include "core/check.h"
#include "rpc/operation/on_engine.h"
#include "transport/engine.h"

namespace weft::internal {

void PostResumption(Engine& engine, std::coroutine_handle<> coroutine) {
  PostOrDrive(CoreOf(engine), coroutine);
}

void SleepAwaiter::Schedule() {
  EngineCore& engine = CoreOf(engine_);
  if (engine.OnEngine()) return ScheduleIn(engine, *this, delay_us_);
  PostOrDrive(engine, [this, &engine] { ScheduleIn(engine, *this, delay_us_); });
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
  WEFT_CHECK(!state_->engine.InTurn());
  state_->engine.Wait(state_->waiter);
}

}  // namespace weft::internal
