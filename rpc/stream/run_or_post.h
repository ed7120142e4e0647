// The way of a thread to the stream that it uses.
//
// Threads: any that may use the stream.
#pragma once

#include <utility>

#include "core/function.h"
#include "rpc/operation/on_engine.h"
#include "rpc/stream/stream.h"
#include "transport/engine.h"

namespace weft {

// Posts `task` in a later turn, when there is room. REQUIRES: in a turn.
void PostInLaterTurn(EngineCore& engine, Function<void()> task);

// This thread drives the engine, and nothing that it has posted for the stream is on its way.
inline bool MayGoAhead(EngineCore& engine, const Stream& stream) {
  return engine.OnEngine() && !stream.posted();
}

// Runs `task`, which does something with the stream, on the engine: here if this thread may drive
// it, else posted behind what it has posted before. The stream is its caller's until then. In a
// child of fork() a stream of the parent's stays as it is.
template <class Task>
void RunOrPost(EngineCore& engine, Stream& stream, Task task) {
  const bool on_engine = engine.OnEngine();
  if (!stream.posted() && engine.Enter()) {
    stream.BeginPosted();
    task();
    if (!on_engine) stream.Flush();
    stream.EndPosted();
    return engine.Leave();
  }
  if (engine.forked()) return;
  stream.BeginPosted();
  Function<void()> posted = [&stream, task = std::move(task)]() mutable {
    task();
    stream.EndPosted();
  };
  if (!engine.InTurn()) return PostOrDrive(engine, std::move(posted));
  // NOLINTNEXTLINE(bugprone-use-after-move): what was refused is as it was
  if (!engine.Post(std::move(posted))) PostInLaterTurn(engine, std::move(posted));
}

}  // namespace weft
