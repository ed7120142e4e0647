// A unary call in the hands of an asynchronous handler: the request, the reply to fill, and the
// right and duty to finish it.
//
//   void StartGet(weft::UnaryCall<GetRequest, GetReply> call) override {
//     store_.Lookup(call.request().key(), [call = std::move(call)](std::string value) mutable {
//       call.reply()->set_value(std::move(value));
//       call.Finish(absl::OkStatus());
//     });
//   }
//
// Threads: one at a time, any of them; Finish() hands the reply back to the engine. It never waits
//   for the network.
// Lifetime: request, reply and context are valid until Finish(), also when the connection is lost
//   meanwhile (the reply then goes nowhere).
// Errors: a call that is dropped without Finish() is finished with INTERNAL, naming the method.
// Invariants: finished exactly once.
// REQUIRES: finished or dropped before the Server is destroyed; ~Server() waits for it.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "core/check.h"
#include "rpc/layout/fixed_layout.h"
#include "rpc/server/server_context.h"
#include "rpc/wire/service.h"

namespace weft {

class ServerCall;

namespace internal {

// What a UnaryCall does with its call (server_call.h).
ServerContext& ContextOf(ServerCall& call);
const CallBody& RequestOf(const ServerCall& call);
const CallBody& ReplyOf(const ServerCall& call);
void Finish(ServerCall& call, absl::Status&& status);
void FinishDropped(ServerCall& call);

// A request or reply as what it is.
template <class T>
T* BodyAs(const CallBody& body) {
  if constexpr (FixedLayout<T>) {
    return static_cast<T*>(body.record);
  } else {
    return static_cast<T*>(body.message);
  }
}

}  // namespace internal

template <class Request, class Reply>
class UnaryCall {
 public:
  // For generated code. Takes over the duty to finish `call`.
  explicit UnaryCall(ServerCall& call) : call_(&call) {}

  UnaryCall(UnaryCall&& other) noexcept : call_(std::exchange(other.call_, nullptr)) {}
  UnaryCall& operator=(UnaryCall&& other) noexcept {
    if (this != &other) {
      Drop();
      call_ = std::exchange(other.call_, nullptr);
    }
    return *this;
  }
  ~UnaryCall() { Drop(); }

  // REQUIRES (all of these): not finished and not moved from.
  ServerContext& context() const { return internal::ContextOf(*call_); }
  const Request& request() const { return *internal::BodyAs<Request>(internal::RequestOf(*call_)); }
  // Empty when the handler starts. On the call's arena: do not take parts of it elsewhere.
  Reply* reply() const { return internal::BodyAs<Reply>(internal::ReplyOf(*call_)); }

  // Sends the reply if `status` is OK, else the error (the code and the text; texts are cut at
  // kMaxStatusText bytes). The call's objects are not touched by this handle any more.
  void Finish(absl::Status status) {
    WEFT_CHECK(call_ != nullptr);
    internal::Finish(*std::exchange(call_, nullptr), std::move(status));
  }

 private:
  void Drop() {
    if (call_ != nullptr) internal::FinishDropped(*std::exchange(call_, nullptr));
  }

  ServerCall* call_;
};

}  // namespace weft
