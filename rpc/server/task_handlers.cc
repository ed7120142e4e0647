#include "rpc/server/task_handlers.h"

#include "rpc/server/server_call.h"

namespace weft::internal {
namespace {

void FinishCall(void* call, TaskPromise& over) {
  Task<absl::Status> task = Task<absl::Status>::Adopt(over);
  absl::Status status = task.TakeValue();
  task = Task<absl::Status>();
  static_cast<HandledCall*>(call)->Finish(std::move(status));
}

}  // namespace

Executor*& StartingOn() {
  static constinit thread_local Executor* executor = nullptr;
  return executor;
}

Executor* ExecutorOfHandler(const ServerContext& context) {
  return static_cast<const ServerCall&>(context).runs_here() ? nullptr : StartingOn();
}

void FinishWith(HandledCall& call, Task<absl::Status> task) {
  Task<absl::Status>::BeginAlone(std::move(task), &FinishCall, &call, ExecutorOfHandler(call));
}

}  // namespace weft::internal
