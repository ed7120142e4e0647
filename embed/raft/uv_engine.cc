#include "embed/raft/uv_engine.h"

#include <sched.h>

#include <algorithm>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/strings.h"

namespace weft::embed {
namespace {

constexpr uint64_t kMaxSpinUs = 1'000'000;
// A loop that sleeps longer than this has nothing to wait for anyway.
constexpr uint64_t kMaxSleepMs = 60'000;
// Turns of an engine before the loop's other handles have theirs.
constexpr int kMaxTurns = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<UvEngine>> UvEngine::Start(uv_loop_t* loop, Engine& engine,
                                                          uint64_t spin_us) {
  if (spin_us > kMaxSpinUs) {
    return absl::InvalidArgumentError(
        StrCat("UvEngine: spin_us is ", spin_us, "; it must be 0..", kMaxSpinUs));
  }
  engine.Adopt();
  std::unique_ptr<UvEngine> self(new UvEngine(engine, spin_us));
  // Of these only uv_poll_init() can fail, and leaves nothing in the loop then.
  if (const int code = uv_poll_init(loop, &self->poll_, engine.fd()); code != 0) {
    return absl::ResourceExhaustedError(StrCat("UvEngine: uv_poll_init: ", uv_strerror(code)));
  }
  uv_prepare_init(loop, &self->prepare_);
  uv_idle_init(loop, &self->idle_);
  uv_timer_init(loop, &self->timer_);
  self->open_ = 4;
  self->poll_.data = self->prepare_.data = self->idle_.data = self->timer_.data = self.get();
  uv_prepare_start(&self->prepare_, [](uv_prepare_t* handle) {
    static_cast<UvEngine*>(handle->data)->BeforeSleep();
  });
  // They end the loop's sleep; the work is done before the next one.
  uv_poll_start(&self->poll_, UV_READABLE, [](uv_poll_t*, int, int) {});
  return self;
}

UvEngine::~UvEngine() = default;

void UvEngine::BeforeSleep() {
  const uint64_t now_ns = engine_.clock().NowNs();
  bool sleeps = false;
  for (int turn = 0; turn < kMaxTurns && !sleeps; ++turn) {
    const bool busy = engine_.Poll() > 0;
    if (busy) busy_ns_ = now_ns;
    if (stopping_) return;  // by a callback
    if (now_ns - busy_ns_ < spin_ns_) {
      if (busy) continue;
      // libuv's threads, which write files, and others with this processor alone have their turn
      // now. A scheduler that lets whoever runs finish its slice (EEVDF: 3 to 4 ms) would else give
      // them one in which what the loop waits for is long due.
      sched_yield();
      break;
    }
    // Arm() looks whether there is more to do: a turn that finds nothing would do so twice.
    sleeps = engine_.Arm();
  }
  if (!sleeps) {
    uv_idle_start(&idle_, [](uv_idle_t*) {});
    return;
  }
  uv_idle_stop(&idle_);
  const uint64_t timer_ns = engine_.NextTimerNs();
  if (timer_ns == kNever) {
    uv_timer_stop(&timer_);
    return;
  }
  const uint64_t left_ms = timer_ns > now_ns ? (timer_ns - now_ns) / kNsPerMs + 1 : 0;
  uv_timer_start(
      &timer_, [](uv_timer_t*) {}, std::min(left_ms, kMaxSleepMs), /*repeat=*/0);
}

void UvEngine::Stop(Function<void()> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  const auto closed = [](uv_handle_t* handle) { static_cast<UvEngine*>(handle->data)->OnClosed(); };
  uv_close(reinterpret_cast<uv_handle_t*>(&prepare_), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&idle_), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&timer_), closed);
  uv_close(reinterpret_cast<uv_handle_t*>(&poll_), closed);
}

void UvEngine::OnClosed() {
  if (--open_ > 0) return;
  Function<void()> stopped = std::move(stopped_);
  stopped();  // this object may be gone then
}

}  // namespace weft::embed
