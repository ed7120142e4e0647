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
// A one-way message is such a call as well: its reply has no fields and goes nowhere, and Finish()
// says that the request is done with. An error is counted (ServerStats) and logged.
//
// Threads: one at a time, any of them; Finish() hands the reply back to the engine. It never waits
//   for the network. Where the inbox of the connection's engine is full it waits for room, and
//   where this thread may drive that engine (kCaller, or its own kExternal one, and nobody else
//   does) it makes the room itself: a turn, with callbacks and handlers, inside Finish(). So no
//   lock is held there that these take.
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

namespace internal {

// A call as its handler has it: the part of a ServerCall that UnaryCall needs.
class HandledCall : public ServerContext {
 public:
  // Which of the two each is: the method knows.
  const CallBody& request() const { return request_; }
  const CallBody& reply() const { return reply_; }

  // Ends the call with the reply (OK) or an error. From another thread than the engine's it is
  // handed over; never waits for the network.
  void Finish(absl::Status&& status) {
    if (running_ != this) [[unlikely]]
      return FinishLater(std::move(status));
    // The connection, which is below on the stack, answers when the handler has returned.
    finished_ = true;
    if (!status.ok()) status_ = std::move(status);
  }
  // Finish() for a handler that forgot it.
  void FinishDropped();

 protected:
  HandledCall() = default;
  ~HandledCall() = default;

  // Finish() elsewhere than in a handler that runs on the engine's thread.
  void FinishLater(absl::Status status);

  // The call whose handler this thread runs, as an engine's.
  static inline constinit thread_local HandledCall* running_ = nullptr;

  bool finished_ = false;  // by its handler, which has not returned
  CallBody request_;       // on the call's arena
  CallBody reply_;
  absl::Status status_;  // how it ended
};

// A method of one-way messages that was called for a reply. True: the call has ended.
bool EndUnlessOneWay(HandledCall& call);

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
  explicit UnaryCall(internal::HandledCall& call) : call_(&call) {}

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
  ServerContext& context() const { return *call_; }
  const Request& request() const { return *internal::BodyAs<Request>(call_->request()); }
  // Empty when the handler starts. On the call's arena: do not take parts of it elsewhere.
  Reply* reply() const { return internal::BodyAs<Reply>(call_->reply()); }

  // Sends the reply if `status` is OK, else the error (the code and the text; texts are cut at
  // kMaxStatusText bytes). The call's objects are not touched by this handle any more.
  void Finish(absl::Status status) {
    WEFT_CHECK(call_ != nullptr);  // User: one Finish()
    std::exchange(call_, nullptr)->Finish(std::move(status));
  }

  // For generated code: gives the duty to finish the call up.
  internal::HandledCall& Release() {
    WEFT_CHECK(call_ != nullptr);  // User: one Finish()
    return *std::exchange(call_, nullptr);
  }

 private:
  void Drop() {
    if (call_ != nullptr) std::exchange(call_, nullptr)->FinishDropped();
  }

  internal::HandledCall* call_;
};

}  // namespace weft
