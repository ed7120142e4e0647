// Where an application wants its handlers to run, when not on the engine itself.
//
// Handlers run on the engine's thread by default: right for work of up to a few microseconds,
// because every connection of that engine waits meanwhile. Longer work goes to an Executor (a
// thread pool, a database's scheduler), given to Server::AddService() or in ServerOptions.
#pragma once

#include "core/function.h"

namespace weft {

class Executor {
 public:
  // Runs `task` soon, once, on any thread but from inside this call. False: no room; the caller of
  // that RPC gets RESOURCE_EXHAUSTED, and `task` is destroyed unrun.
  // Threads: called on engine threads, and must not block them; on several at once where a server
  // has several engines (ServerOptions::engines), or servers share it.
  virtual bool Run(Function<void()> task) = 0;

 protected:
  ~Executor() = default;
};

}  // namespace weft
