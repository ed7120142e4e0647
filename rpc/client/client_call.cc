#include "rpc/client/client_call.h"

#include <utility>

#include "core/inline.h"
#include "core/strings.h"
#include "rpc/client/call_context.h"
#include "rpc/client/client_steps.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/wire/extras.h"
#include "rpc/wire/frame.h"
#include "rpc/wire/status_text.h"
#include "weft/status.h"

namespace weft {
namespace {

// An error that the server has answered: its own, or the handler's.
WEFT_COLD absl::Status AnsweredError(const ReplyHeader& header, ByteSpan text) {
  absl::Status status(static_cast<absl::StatusCode>(header.status), ToAbsl(AsStringView(text)));
  if (header.not_run) return WithDelivery(std::move(status), Delivery::kNotSent);
  if (!MayBeWeftsOwn(status.code())) return status;
  return WithDelivery(std::move(status), Delivery::kMayHaveRun);
}

}  // namespace

// A call by callback that leaves at once, and is answered in time, touches two lines of it: what
// every call has, and the callback.
static_assert(sizeof(Function<void(absl::Status)>) == kCacheLineBytes);
static_assert(alignof(CallbackCall) == kCacheLineBytes);

void ClientCall::OnTimer() { client->Expire(*this); }

// --- its reply ----------------------------------------------------------------------------------

WEFT_COLD absl::Status ClientCall::OutcomeOf(const ReplyHeader& header, ByteSpan body,
                                             const std::string& address, uint64_t max_reply_bytes) {
  if (header.status != 0) return AnsweredError(header, body);
  return WithDelivery(ReadReply(body, header.attachment.size(), address, max_reply_bytes),
                      Delivery::kMayHaveRun);
}

// Of a call that has run; OK, or why the reply cannot be read.
absl::Status ClientCall::ReadReply(ByteSpan body, size_t attachment_bytes,
                                   const std::string& address, uint64_t max_reply_bytes) {
  if (body.size() + attachment_bytes > max_reply_bytes) {
    return absl::ResourceExhaustedError(StrCat("the reply has ", body.size() + attachment_bytes,
                                               " bytes; ChannelOptions::max_reply_bytes is ",
                                               max_reply_bytes, " (the request has run)"));
  }
  if (layouts != nullptr && layouts->reply.type != nullptr) {
    LayoutSide side = layouts->reply;
    if (reply_converted) side = {side.type, 0};  // as it travels
    if (DecodeBody(side, body, reply)) return absl::OkStatus();
    return absl::DataLossError(StrCat("the reply from ", address,
                                      " cannot be decoded: ", WhyNotDecoded(side, body, reply)));
  }
  google::protobuf::MessageLite& message = *reply.message;
  if (!message.ParsePartialFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::DataLossError(StrCat("the reply of ", body.size(), " bytes from ", address,
                                      " cannot be decoded as ",
                                      std::string(message.GetTypeName())));
  }
  if (!message.IsInitialized()) {
    return absl::DataLossError(StrCat("the reply from ", address, " lacks required fields of ",
                                      std::string(message.GetTypeName()), ": ",
                                      message.InitializationErrorString()));
  }
  return absl::OkStatus();
}

WEFT_COLD bool ClientCall::TakeExtras(ByteSpan extras, absl::Status* outcome) {
  if (extras.empty()) return true;
  if (context != nullptr) return context->TakeReply(extras, outcome);
  Metadata metadata;  // nobody reads it
  return DecodeExtras(extras, &metadata, outcome->ok() ? nullptr : outcome);
}

// --- by callback --------------------------------------------------------------------------------

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
