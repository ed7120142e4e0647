// Weft in a program's asio loop: Run() in the place of io_context::run().
//
//   AsioLoop weft(context, engine);      // an engine with Drive::kExternal
//   weft.Run();                          // until context.stop(); Weft's callbacks run inside
//
// The engine makes a turn between the program's handlers and before each sleep, so what they have
// started leaves. For Boost.Asio: the same in its namespace.
//
// Threads: Run()'s, which owns the engine from now on: one thread runs the context. Lifetime:
//   context and engine outlive it, and the context is not run any more behind it. Errors: asio's
//   exceptions.
#pragma once

#include <fcntl.h>

#include <asio.hpp>
#include <chrono>
#include <utility>

#include "weft/engine.h"

class AsioLoop {
 public:
  // asio closes its descriptors: this is another one for the same thing.
  AsioLoop(asio::io_context& context, weft::Engine& engine)
      : context_(context),
        engine_(engine),
        ready_(context, fcntl(engine.fd(), F_DUPFD_CLOEXEC, 0)),
        timer_(context) {}

  void Run() {
    engine_.Adopt();
    const auto goes_on = asio::make_work_guard(context_);
    while (!context_.stopped()) {
      const bool was_busy = engine_.Poll() > 0;
      if (context_.poll_one() > 0 || was_busy || !engine_.Arm()) continue;
      if (!std::exchange(watches_, true)) {
        ready_.async_wait(asio::posix::stream_descriptor::wait_read,
                          [this](const asio::error_code&) { watches_ = false; });
      }
      // To set it again would end the wait before, whose handler would end the next sleep at once.
      const uint64_t timer_ns = engine_.NextTimerNs();
      if (timer_ns != weft::kNever && timer_ns != std::exchange(timer_ns_, timer_ns)) {
        timer_.expires_at(
            std::chrono::steady_clock::time_point(std::chrono::nanoseconds(timer_ns)));
        timer_.async_wait([this](const asio::error_code& error) {
          if (!error) timer_ns_ = weft::kNever;
        });
      }
      context_.run_one();  // sleeps; whatever ends that, the engine has a turn next
    }
  }

 private:
  asio::io_context& context_;
  weft::Engine& engine_;
  asio::posix::stream_descriptor ready_;
  asio::steady_timer timer_;
  bool watches_ = false;
  uint64_t timer_ns_ = weft::kNever;  // what timer_ waits for
};
