// Drives a Weft engine from a libuv loop.
//
//   auto engine = OpenNetworkEngine({.drive = EngineOptions::Drive::kExternal});
//   auto driver = UvEngine::Start(&loop, **engine);
//   ...
//   driver->Stop([] { ... });          // before the loop is closed
//
// In each turn of the loop, before it sleeps, what callbacks have sent leaves and what has come is
// handed out (uv_prepare); the loop then sleeps on the engine's descriptor beside its own, until
// the engine's next timer at the latest. While the engine has something to do, and for `spin_us`
// after it had, the loop does not sleep (uv_idle).
//
// Threads: the loop's, which becomes the engine's owner (Engine::Adopt()). Lifetime: loop and
// engine outlive it; it is destroyed inside Stop()'s callback, or after it. Errors: those of
// libuv's functions, which fail for want of descriptors.
#pragma once

#include <uv.h>

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "weft/engine.h"

namespace weft::embed {

class UvEngine {
 public:
  // `spin_us`: 0 to 1,000,000. Higher: no wake-up for messages that come closely; costs a core, but
  // for what others want of it: a turn with nothing to do yields (sched_yield).
  static absl::StatusOr<std::unique_ptr<UvEngine>> Start(uv_loop_t* loop, Engine& engine,
                                                         uint64_t spin_us = 0);
  ~UvEngine();
  UvEngine(const UvEngine&) = delete;
  UvEngine& operator=(const UvEngine&) = delete;

  // `stopped` is called by the loop, once, when nothing of this is in it any more.
  void Stop(Function<void()> stopped);

 private:
  UvEngine(Engine& engine, uint64_t spin_us) : engine_(engine), spin_ns_(spin_us * 1000) {}

  void BeforeSleep();
  void OnClosed();

  Engine& engine_;
  const uint64_t spin_ns_;
  uint64_t busy_ns_ = 0;  // on the engine's clock: when there was something to do last
  int open_ = 0;          // handles in the loop
  bool stopping_ = false;
  Function<void()> stopped_;
  uv_prepare_t prepare_ = {};
  uv_idle_t idle_ = {};
  uv_timer_t timer_ = {};
  uv_poll_t poll_ = {};
};

}  // namespace weft::embed
