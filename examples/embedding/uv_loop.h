// Weft in a program's libuv loop.
//
//   UvLoop weft(uv_default_loop(), engine);    // an engine with Drive::kExternal
//   uv_run(uv_default_loop(), UV_RUN_DEFAULT); // Weft's callbacks run in its turns
//   ...
//   weft.Close();                              // and the loop runs until it has let go of it
//
// Before each sleep of the loop the engine makes a turn, so what the loop's other callbacks have
// started leaves; then the loop sleeps on the engine's descriptor beside its own.
//
// Threads: the loop's, which owns the engine from now on. Lifetime: loop and engine outlive it; it
//   outlives the loop's turn behind Close(), in which its handles end. Errors: the process
//   ends where the loop can watch no further descriptor.
#pragma once

#include <uv.h>

#include <algorithm>
#include <cstdlib>

#include "weft/engine.h"

class UvLoop {
 public:
  UvLoop(uv_loop_t* loop, weft::Engine& engine) : engine_(engine) {
    engine.Adopt();
    before_sleep_.data = this;
    uv_prepare_init(loop, &before_sleep_);
    uv_idle_init(loop, &awake_);
    uv_timer_init(loop, &timer_);
    if (uv_poll_init(loop, &ready_, engine.fd()) != 0) std::abort();
    uv_poll_start(&ready_, UV_READABLE, [](uv_poll_t*, int, int) {});  // ends the loop's sleep
    uv_prepare_start(&before_sleep_, [](uv_prepare_t* handle) {
      static_cast<UvLoop*>(handle->data)->BeforeSleep();
    });
  }

  void Close() {
    for (uv_handle_t* handle :
         {reinterpret_cast<uv_handle_t*>(&before_sleep_), reinterpret_cast<uv_handle_t*>(&awake_),
          reinterpret_cast<uv_handle_t*>(&timer_), reinterpret_cast<uv_handle_t*>(&ready_)}) {
      if (!uv_is_closing(handle)) uv_close(handle, nullptr);
    }
  }

 private:
  void BeforeSleep() {
    const bool may_sleep = engine_.Poll() == 0 && engine_.Arm();
    if (uv_is_closing(reinterpret_cast<uv_handle_t*>(&awake_))) return;  // by a callback
    // A loop with an idle handle does not sleep.
    may_sleep ? uv_idle_stop(&awake_) : uv_idle_start(&awake_, [](uv_idle_t*) {});
    const uint64_t timer_ns = engine_.NextTimerNs();
    const uint64_t now_ns = engine_.clock().NowNs();
    const uint64_t left_ns = timer_ns > now_ns ? timer_ns - now_ns : 0;
    const uint64_t left_ms = std::min<uint64_t>(left_ns / 1'000'000 + 1, 60'000);
    uv_timer_start(
        &timer_, [](uv_timer_t*) {}, left_ms, /*repeat=*/0);
  }

  weft::Engine& engine_;
  uv_prepare_t before_sleep_ = {};
  uv_idle_t awake_ = {};
  uv_timer_t timer_ = {};
  uv_poll_t ready_ = {};
};
