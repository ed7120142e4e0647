#include "rpc/client/call_awaiter.h"

#include <utility>

#include "core/function.h"

namespace weft {

// The call may end, and this be gone, before Call() returns: that has copies.
void CallAwaiter::Start() {
  const LayoutCall bodies = bodies_;
  const CallOptions options = options_;
  Function<void(absl::Status)> done = [this](absl::Status status) {
    status_ = std::move(status);
    resumption_();
  };
  if (bodies.layouts != nullptr) return channel_.Call(method_, bodies, options, std::move(done));
  channel_.Call(method_, *bodies.request, bodies.reply.message, options, std::move(done));
}

}  // namespace weft
