// Closes registrations on their engine's thread, from wherever their owner is destroyed.
//
// Threads: any. Where this thread may drive the engine, `close` runs at once; otherwise the caller
//   waits until the engine has run it (kExternal: while its owner polls).
#pragma once

#include <thread>

#include "transport/engine.h"

namespace weft {

template <class F>
void CloseOnEngine(EngineCore& engine, F&& close) {
  if (engine.Enter()) {
    close();
    engine.Leave();
    return;
  }
  Waiter closed;
  const auto run = [&] {
    close();
    engine.Finish(closed);
  };
  while (!engine.Post(run)) std::this_thread::yield();
  engine.Wait(closed);
}

}  // namespace weft
