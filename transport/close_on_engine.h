// Closes registrations on their engine's thread, from wherever their owner is destroyed.
//
// In a child of fork(), of an engine of the parent's, `close` does not run: they stay as they are.
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
  if (engine.forked()) return;
  Waiter closed;
  const auto run = [&] {
    close();
    engine.Finish(closed);
  };
  while (!engine.Post(run)) std::this_thread::yield();
  engine.Wait(closed);
}

}  // namespace weft
