#include "rpc/client_call.h"

#include <utility>

#include "rpc/client_connection.h"

namespace weft {

void ClientCall::OnTimer() { client->OnCallTimer(*this); }

void CallbackCall::Complete(absl::Status status) {
  early_status = std::move(status);
  if (client->Defer(*this)) return;
  // Back to the spare ones first, so that a call started by the callback can be this object.
  Function<void(absl::Status)> callback = std::move(done);
  absl::Status result = std::move(early_status);
  client->Recycle(this);
  callback(std::move(result));
}

void CallbackCall::KeepRequest() {
  if (request == nullptr) return;
  encoded.resize(request->ByteSizeLong());
  EncodeRequestTo(reinterpret_cast<std::byte*>(encoded.data()));
  request = nullptr;
}

}  // namespace weft
