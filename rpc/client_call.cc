#include "rpc/client_call.h"

#include <utility>

#include "rpc/client_connection.h"

namespace weft {

void ClientCall::OnTimer() { client->OnCallTimer(*this); }

void CallbackCall::Complete(absl::Status status) {
  if (client->MayDefer(*this) && client->Defer(*this, &status)) [[unlikely]]
    return;
  done(std::move(status));
  done = nullptr;
  client->Recycle(this);
}

void CallbackCall::KeepRequest() {
  if (request == nullptr && encoded.data() == storage.data()) return;  // kept
  storage.resize(RequestBytes());
  EncodeRequestTo(reinterpret_cast<std::byte*>(storage.data()));
  encoded = storage;
  request = nullptr;
}

}  // namespace weft
