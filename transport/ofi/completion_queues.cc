#include "transport/ofi/completion_queues.h"

#include "core/log.h"
#include "core/status.h"

namespace weft {

absl::StatusOr<EndpointQueues> CompletionQueues::Join() {
  if (objects_->near_queue.get() != nullptr && near_look_.endpoints() < limits_.near_links) {
    near_look_.Join();
    WakeNear();
    return EndpointQueues{objects_->near_queue.get(), objects_->near_queue.get(), nullptr};
  }
  EndpointQueues queues = {objects_->queue.get(), objects_->queue.get(), nullptr};
  if (objects_->groups != nullptr) {
    WEFT_ASSIGN_OR_RETURN(queues.seat, objects_->groups->Join());
    queues.receives = queues.seat->group->receives.get();
    queues.sends = queues.seat->group->sends->queue.get();
  }
  look_.Join();
  return queues;
}

void CompletionQueues::Leave(const EndpointQueues& queues) {
  const bool near = queues.receives == objects_->near_queue.get();
  (near ? near_look_ : look_).Leave();
  WakeNear();
  if (queues.seat != nullptr) QueueGroups::Leave(queues.seat);
}

bool CompletionQueues::HasEntries() {
  const bool found =
      objects_->groups == nullptr && fi_cq_read(objects_->queue.get(), nullptr, 0) != -FI_EAGAIN;
  if (objects_->near_queue.get() == nullptr) return found;
  WakeNear();  // whatever is taken off its sockets here waits for the next turn
  return !objects_->near_queue.IsEmpty() || found;
}

void CompletionQueues::LogFailure(int64_t result) {
  WEFT_LOG_EVERY_N_SEC(kError, 1, "fi_cq_read: ", fi_strerror(static_cast<int>(-result)));
}

}  // namespace weft
