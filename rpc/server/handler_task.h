// A handler on its way through an executor, with the interceptors before it; or these alone, of a
// further attempt of a call that runs exactly once.
//
// Threads: made on the engine's; runs, or is dropped, on the executor's. Lifetime: its call's.
// Errors: none.
// Invariants: the call is finished once: by the handler, or here.
#pragma once

#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "rpc/operation/executor.h"
#include "rpc/server/dispatch.h"
#include "rpc/server/server_call.h"
#include "rpc/server/task_handlers.h"
#include "rpc/wire/status_text.h"

namespace weft {

inline absl::Status ExpiredError() {
  return NotRunError(absl::StatusCode::kDeadlineExceeded,
                     "it expired before its handler could run");
}

// Finishes the call also when it is dropped unrun.
class HandlerTask {
 public:
  // `executor`: whose thread it runs on; null: the engine's.
  HandlerTask(ServerCall* call, const MethodEntry* entry, Executor* executor)
      : call_(call), entry_(entry), executor_(executor) {}
  HandlerTask(HandlerTask&& other) noexcept
      : call_(std::exchange(other.call_, nullptr)),
        entry_(other.entry_),
        executor_(other.executor_) {}
  HandlerTask& operator=(HandlerTask&&) = delete;
  ~HandlerTask() {
    if (call_ == nullptr) return;
    call_->Finish(
        NotRunError(absl::StatusCode::kResourceExhausted,
                    "the server's executor has no room for another call (not run, safe to retry)"));
  }

  void operator()() {
    ServerCall& call = *std::exchange(call_, nullptr);
    if (call.cancelled() || call.remaining_us() == 0) {
      return call.Finish(ExpiredError());
    }
    const std::string_view service = entry_->service->weft_descriptor().full_name;
    if (absl::Status allowed = call.StartInterceptors(service); !allowed.ok()) {
      return call.Finish(NotRunError(std::move(allowed)));
    }
    if (call.is_repeated()) return call.Finish(absl::OkStatus());
    Executor* const outer = std::exchange(internal::StartingOn(), executor_);
    entry_->method->start(*entry_->service, call);
    internal::StartingOn() = outer;
  }

 private:
  ServerCall* call_;
  const MethodEntry* entry_;
  Executor* const executor_;
};

// Starts the handler of `call` by the executor of `entry`, or by the one that this chooses: at once
// where this thread is that one's. False: it is to run here and now, as that of an entry without an
// executor does.
// `watch`: its deadline is still to be watched, if it does not run here.
// REQUIRES: `entry` has an executor; on the engine's thread.
bool HandOver(ServerCall& call, const MethodEntry& entry, bool watch);

}  // namespace weft
