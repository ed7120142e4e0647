#include "rpc/server/one_way_calls.h"

#include "core/check.h"

namespace weft {

void OneWayCalls::OnTimer() {
  CancelUntil(engine_.clock().NowNs());
  for (const ServerCall& call : running_) {
    if (!call.cancelled()) Watch(call);
  }
}

// Those whose deadlines are no later than that.
void OneWayCalls::CancelUntil(uint64_t deadline_ns) {
  // A handler that is told may end its call, and others.
  IntrusiveList<ServerCall> seen;
  while (ServerCall* const call = running_.PopFront()) {
    seen.PushBack(call);
    if (call->deadline_ns() <= deadline_ns && !call->cancelled()) call->SetCancelled();
  }
  running_.SpliceBack(seen);
}

// Ours: invariants, which tests ask for
void OneWayCalls::CheckInvariants() const { WEFT_CHECK(running_.CountSlowly() == size_); }

}  // namespace weft
