#include "rpc/server/server_extras.h"

#include <utility>

#include "rpc/server/server_call.h"

namespace weft {

bool ServerExtras::OnCancel(Function<void()>& callback) {
  const std::lock_guard lock(mutex_);
  if (call_.cancelled()) return false;
  on_cancel_ = std::move(callback);
  return true;
}

void ServerExtras::Run() {
  Function<void()> callback;
  {
    const std::lock_guard lock(mutex_);
    callback = std::exchange(on_cancel_, nullptr);
  }
  if (callback) callback();
}

void ServerExtras::Forget() {
  Function<void()> dropped;  // destroyed after the lock is free: it may hold anything
  const std::lock_guard lock(mutex_);
  dropped = std::exchange(on_cancel_, nullptr);
}

void ServerExtras::OnTimer() { call_.SetCancelled(); }

}  // namespace weft
