#include "rpc/client/client_call.h"

#include <utility>

#include "rpc/client/client_steps.h"

namespace weft {

// A call by callback that leaves at once, and is answered in time, touches two lines of it: what
// every call has, and the callback.
static_assert(sizeof(Function<void(absl::Status)>) == kCacheLineBytes);
static_assert(alignof(CallbackCall) == kCacheLineBytes);

void ClientCall::OnTimer() { client->Expire(*this); }

void CallbackCall::Complete(absl::Status status) {
  if (client->Defer(*this, &status)) [[unlikely]]
    return;
  done(std::move(status));
  done = nullptr;
  ForgetRequest();
  client->Recycle(*this);
}

void CallbackCall::KeepRequest() {
  if (request == nullptr && encoded.data() == storage.data()) return;  // kept
  if (request != nullptr) {
    storage.resize(RequestBytes(*request));
    EncodeRequestTo(*request, reinterpret_cast<std::byte*>(storage.data()));
  } else {
    storage.assign(encoded);
  }
  encoded = storage;
  request = nullptr;
}

void CallbackCall::ForgetRequest() {
  encoded = {};
  if (storage.capacity() > kKeepBytes) std::string().swap(storage);
}

}  // namespace weft
