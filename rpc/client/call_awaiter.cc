#include "rpc/client/call_awaiter.h"

#include <utility>

#include "core/function.h"
#include "weft/engine.h"

namespace weft {

bool CallAwaiter::Start() {
  Function<void(absl::Status)> done = [this](absl::Status status) {
    status_ = std::move(status);
    resumption_();
  };
  if (one_way_) {
    channel_.SendOneWay(method_, bodies_, options_, std::move(done));
  } else if (bodies_.layouts != nullptr) {
    channel_.Call(method_, bodies_, options_, std::move(done));
  } else {
    channel_.Call(method_, *bodies_.request, bodies_.reply.message, options_, std::move(done));
  }
  return resumption_.Suspend(channel_.engine().OnEngine());
}

}  // namespace weft
