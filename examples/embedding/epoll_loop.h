// Weft in a program's epoll loop: Wait() in the place of epoll_wait().
//
//   EpollLoop weft(epoll, engine);       // an engine with Drive::kExternal
//   for (;;) {
//     epoll_event events[64];
//     const int ready = weft.Wait(events, 64);
//     ...                                // the program's own, as before
//   }
//
// Weft's callbacks run inside of Wait(). Each Wait() begins with a turn of the engine, so what the
// program has started since the last one leaves.
//
// Unlike epoll_wait() it may return 0 before the time is over: nothing of the program's is ready,
// and Weft had something to do. The program's own events have data.fd: with data.ptr, compare a
// pointer of your own below.
//
// Threads: the loop's, which owns the engine from now on. Lifetime: descriptor and engine outlive
//   it. Errors: epoll_wait's.
#pragma once

#include <sys/epoll.h>

#include <algorithm>

#include "weft/engine.h"

class EpollLoop {
 public:
  EpollLoop(int epoll, weft::Engine& engine) : epoll_(epoll), engine_(engine) {
    engine.Adopt();
    epoll_event event = {.events = EPOLLIN, .data = {.fd = engine.fd()}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, engine.fd(), &event);
  }
  ~EpollLoop() { epoll_ctl(epoll_, EPOLL_CTL_DEL, engine_.fd(), nullptr); }

  int Wait(epoll_event* events, int most, int timeout_ms = -1) {
    const bool may_sleep = engine_.Poll() == 0 && engine_.Arm();
    const int ready = epoll_wait(epoll_, events, most, may_sleep ? Sooner(timeout_ms) : 0);
    // The engine's own event has ended the sleep; the next turn is what it asks for.
    const auto is_weft = [this](const epoll_event& event) { return event.data.fd == engine_.fd(); };
    return ready < 0 ? ready
                     : static_cast<int>(std::remove_if(events, events + ready, is_weft) - events);
  }

 private:
  // The engine's next timer, if that is sooner. In ms, rounded up: else the loop would spin for
  // one.
  int Sooner(int timeout_ms) const {
    const uint64_t timer_ns = engine_.NextTimerNs();
    if (timer_ns == weft::kNever) return timeout_ms;
    const uint64_t now_ns = engine_.clock().NowNs();
    const uint64_t left_ms = timer_ns > now_ns ? (timer_ns - now_ns) / 1'000'000 + 1 : 0;
    const int weft_ms = static_cast<int>(std::min<uint64_t>(left_ms, 60'000));
    return timeout_ms < 0 ? weft_ms : std::min(timeout_ms, weft_ms);
  }

  const int epoll_;
  weft::Engine& engine_;
};
