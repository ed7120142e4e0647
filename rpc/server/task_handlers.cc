#include "rpc/server/task_handlers.h"

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

void FinishWith(HandledCall& call, Task<absl::Status> task) {
  Task<absl::Status>::BeginAlone(std::move(task), &FinishCall, &call, StartingOn());
}

}  // namespace weft::internal
