// Closes registrations on their engine's thread, from wherever their owner is destroyed.
//
// In a child of fork(), of an engine of the parent's, `close` does not run: they stay as they are.
//
// Threads: any. Where this thread may drive the engine, `close` runs at once; otherwise the caller
//   waits until the engine has run it (kExternal: while its owner polls).
#pragma once

#include "transport/engine.h"

namespace weft {

template <class F>
void CloseOnEngine(EngineCore& engine, F&& close) {
  Waiter closed;
  const auto run = [&] {
    close();
    engine.Finish(closed);
  };
  // Again in each round: whoever drove may have left, with a full inbox that nobody empties then.
  while (!engine.Enter()) {
    if (engine.forked()) return;
    if (engine.Post(run)) {
      engine.Wait(closed);
      return;
    }
    EngineCore::AwaitRoom();
  }
  close();
  engine.Leave();
}

}  // namespace weft
