#include "rpc/server/handler_task.h"

#include "rpc/server/incoming_call.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"

namespace weft {

bool HandOver(ServerCall& call, const MethodEntry& entry, bool watch) {
  ServerConnection& connection = call.connection();
  ServerCore& core = connection.core();
  Executor* executor = entry.executor;
  if (executor == &core.in_place()) {
    executor = nullptr;
  } else {
    executor = executor->For(
        IncomingCall(entry.service->weft_descriptor().full_name, call, call.is_repeated()));
    if (executor == nullptr && core.options().interceptors.empty() && !call.is_repeated()) {
      return false;
    }
  }
  if (executor != nullptr && executor->IsHere()) {
    // Its deadline is watched if it asks to hear of it (OnCancel()), as without an executor.
    HandlerTask(&call, &entry, executor)();
    return true;
  }
  if (watch) connection.WatchDeadline(call);
  Executor& runs_it = executor != nullptr ? *executor : core.in_place();
  runs_it.Run(HandlerTask(&call, &entry, executor));
  return true;
}

}  // namespace weft
