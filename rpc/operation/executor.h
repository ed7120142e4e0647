// Where an application wants its handlers to run, when not on the engine itself.
//
// Handlers run on the engine's thread by default: right for work of up to a few microseconds,
// because every connection of that engine waits meanwhile. Longer work goes to an Executor (a
// thread pool, a database's scheduler), given to Server::AddService() or in ServerOptions.
//
// BY A KEY. A database that gives each shard of its data to one thread wants the handler of a call
// there, whichever engine has the connection. Its executor chooses in For(), by the request or by
// what else is known of the call, among others: EngineExecutors, or executors of its own.
//
//   class ByShard final : public weft::Executor {
//    public:
//     weft::Executor* For(const weft::IncomingCall& call) override {
//       const auto* const get = call.request<GetRequest>();   // all methods here have this request
//       return shards_[get->key() % shards_.size()].For(call);
//     }
//     bool Run(weft::Function<void()>) override { return false; }   // it only chooses
//
//    private:
//     std::vector<weft::EngineExecutor> shards_;   // of server->engine(0), engine(1), ...
//   };
//
// Wherever the handler runs, the reply goes out by the connection's engine, and there the call's
// deadline and its cancel are noticed. A handler that runs on an engine blocks for nothing, on
// whichever: two engines whose handlers waited for each other would wait for ever.
#pragma once

#include "core/function.h"

namespace weft {

class Engine;
class IncomingCall;

class Executor {
 public:
  // Runs `task` soon, once, on any thread but from inside this call. False: no room; the caller of
  // that RPC gets RESOURCE_EXHAUSTED, and `task` is destroyed unrun.
  // Threads: called on engine threads, and must not block them; on several at once where a server
  // has several engines (ServerOptions::engines), or servers share it.
  virtual bool Run(Function<void()> task) = 0;

  // Whose Run() gets the handler of `call`, and what its coroutine goes on with after each await:
  // this, unless overridden. Null: the handler stays on the engine of its connection, and runs at
  // once; its coroutine goes on wherever that which it awaited has ended. What is returned outlives
  // the server, as this does, and is not asked in turn.
  // Once for each call, stream (of one request: when that is here) and one-way message that is to
  // run, and for each attempt of a call that runs exactly once. Looks at the call, and no more.
  // Threads: Run()'s.
  virtual Executor* For(const IncomingCall& call) {
    (void)call;
    return this;
  }

  // What this thread does now is where Run()'s tasks belong: a handler, and what its coroutine goes
  // on with after an await, runs at once, and not by Run(). Asked of what For() has returned.
  virtual bool IsHere() const { return false; }

 protected:
  ~Executor() = default;
};

// An engine as an executor: one of a server's (Server::engine(number)), or any that somebody
// drives, until the servers whose handlers it runs have ended. On the engine's own thread handlers
// run at once, and need no room in its inbox. Nothing of its own: two for one engine are as good as
// one.
class EngineExecutor final : public Executor {
 public:
  // The engine outlives all uses of this.
  explicit EngineExecutor(Engine& engine) : engine_(&engine) {}

  // False: half of EngineOptions::inbox_slots (4,096 for engines that a server has made) wait for
  // the engine; the other half is for replies, which have to get through. A coroutine that finds no
  // room after an await goes on where what it awaited has ended: one that must not asks
  // Engine::OnEngine().
  bool Run(Function<void()> task) override;
  // Engine::OnEngine().
  bool IsHere() const override;

 private:
  Engine* engine_;
};

}  // namespace weft
