#include "rpc/server/server_extras.h"

#include <utility>

#include "core/status.h"
#include "rpc/operation/attachment.h"
#include "rpc/server/server_call.h"
#include "rpc/server/server_connection.h"
#include "rpc/server/server_core.h"

namespace weft {

bool ServerExtras::OnCancel(Function<void()>& callback) {
  const std::lock_guard lock(mutex_);
  if (call_.cancelled()) return false;
  on_cancel_ = std::move(callback);
  return true;
}

// A handler that makes many calls, one after the other, leaves those behind that have ended: they
// are looked for whenever there are twice as many as were left the last time.
bool ServerExtras::CancelWith(const std::weak_ptr<Cancellable>& what) {
  const std::lock_guard lock(mutex_);
  if (call_.cancelled()) return false;
  if (followers_.size() == followers_.capacity()) {
    std::erase_if(followers_, [](const auto& follower) { return follower.expired(); });
  }
  followers_.push_back(what);
  return true;
}

void ServerExtras::Run() {
  Function<void()> callback;
  std::vector<std::weak_ptr<Cancellable>> followers;
  {
    const std::lock_guard lock(mutex_);
    callback = std::exchange(on_cancel_, nullptr);
    followers.swap(followers_);
  }
  for (const std::weak_ptr<Cancellable>& follower : followers) {
    // Without room in its engine's inbox it ends by its deadline, which is the call's.
    if (const auto what = follower.lock()) static_cast<void>(what->Cancel());
  }
  if (callback) callback();
}

void ServerExtras::Forget() {
  Function<void()> dropped;  // destroyed after the lock is free: it may hold anything
  const std::lock_guard lock(mutex_);
  dropped = std::exchange(on_cancel_, nullptr);
  followers_.clear();
}

absl::Status ServerExtras::Intercept(std::span<ServerInterceptor* const> interceptors,
                                     std::string_view service, const Clock& clock) {
  interceptors_ = interceptors;
  service_ = service;
  start_ns_ = clock.NowNs();
  data_.fill(nullptr);
  started_ = 0;
  is_repeated_ = repeats.has_value();
  IncomingCall call(service_, call_, is_repeated_);
  for (ServerInterceptor* const interceptor : interceptors_) {
    call.data_ = &data_[started_];
    WEFT_RETURN_IF_ERROR(interceptor->OnStart(call));
    ++started_;
  }
  return absl::OkStatus();
}

// --- what came ----------------------------------------------------------------------------------

absl::Status ServerExtras::TakeMetadata(ServerConnection& client, size_t bytes, Metadata metadata) {
  WEFT_RETURN_IF_ERROR(client.core().Charge(bytes, *client.held_bytes()));
  charged_bytes_ += bytes;
  received = std::move(metadata);
  return absl::OkStatus();
}

absl::Status ServerExtras::TakeAttachment(ServerConnection& client, Connection& connection,
                                          size_t message_bytes, ByteSpan bytes) {
  ServerCore& core = client.core();
  const size_t all_bytes = message_bytes + bytes.size();
  if (all_bytes > core.options().max_request_bytes) return core.RequestTooLargeError(all_bytes);
  WEFT_RETURN_IF_ERROR(core.Charge(bytes.size(), *client.held_bytes()));
  charged_bytes_ += bytes.size();
  attachment = KeepAttachment(connection, message_bytes, bytes);
  return absl::OkStatus();
}

size_t ServerExtras::Clear() {
  received.Clear();
  reply.Clear();
  attachment.Clear();
  reply_attachment.Clear();
  return std::exchange(charged_bytes_, 0);
}

// --- the end ------------------------------------------------------------------------------------

void ServerExtras::EndInterception(const absl::Status& status, const Clock& clock) {
  if (started_ == 0) return;
  IncomingCall call(service_, call_, is_repeated_);
  call.elapsed_ns_ = clock.NowNs() - start_ns_;
  while (started_ > 0) {
    call.data_ = &data_[--started_];
    interceptors_[started_]->OnEnd(call, status);
  }
}

void ServerExtras::OnTimer() { call_.Expire(); }

}  // namespace weft
