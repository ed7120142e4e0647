// Runs the handlers of a CoService, which are coroutines: what its Start... functions call. For
// generated code.
//
// Threads: as handlers. One that begins on an executor goes on there after each await. The call is
//   finished where its coroutine ends.
// Lifetime: a coroutine's frame goes before its call is finished: it may lie in the call's memory.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "rpc/coroutine/await.h"
#include "rpc/operation/executor.h"
#include "rpc/server/unary_call.h"

namespace weft::internal {

// The executor that this thread runs a handler on: null while it runs one on the engine.
Executor*& StartingOn();
// The one that the handler of this call, which is about to begin its coroutine, runs on; null: the
// engine.
Executor* ExecutorOfHandler(const ServerContext& context);

// Begins `task`, and finishes `call` with what it ends with. REQUIRES: there is a coroutine.
void FinishWith(HandledCall& call, Task<absl::Status> task);

// The same of a stream, whose handle lives as long as the coroutine.
template <class Stream, class Begin, class Fallback>
Task<> RunStream(Stream stream, Begin begin, Fallback fallback) {
  Task<absl::Status> task = begin(stream);
  if (!task) {
    fallback(std::move(stream));
    co_return;
  }
  absl::Status status = co_await std::move(task);
  task = Task<absl::Status>();  // its frame may lie in the call's memory
  stream.Finish(std::move(status));
}

// begin(stream) gives the coroutine; if it gives none, fallback(stream) has the stream.
template <class Stream, class Begin, class Fallback>
void ServeStream(Stream stream, Begin begin, Fallback fallback) {
  Executor* const executor = ExecutorOfHandler(stream.context());
  Start(
      RunStream(std::move(stream), std::move(begin), std::move(fallback)), [] {}, executor);
}

}  // namespace weft::internal
