#include "rpc/client/call_awaiter.h"

#include <utility>

#include "core/function.h"

namespace weft {

void CallAwaiter::Start() {
  Function<void(absl::Status)> done = [this](absl::Status status) {
    status_ = std::move(status);
    resumption_();
  };
  if (one_way_) return channel_.SendOneWay(method_, bodies_, options_, std::move(done));
  if (bodies_.layouts != nullptr) return channel_.Call(method_, bodies_, options_, std::move(done));
  channel_.Call(method_, *bodies_.request, bodies_.reply.message, options_, std::move(done));
}

}  // namespace weft
