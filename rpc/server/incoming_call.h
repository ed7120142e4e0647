// A call or stream as it comes to its server, before its handler: for interceptors, and for
// executors that choose by what is called (Executor::For()).
//
// Threads: of whoever is called with it. Lifetime: valid inside that function only.
#pragma once

#include <cstdint>
#include <string_view>

#include "rpc/server/server_context.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/service.h"

namespace weft {

class IncomingCall {
 public:
  // The server's.
  IncomingCall(std::string_view service, ServerContext& context, bool is_repeated)
      : service_(service), context_(context), is_repeated_(is_repeated) {}

  std::string_view service() const { return service_; }  // "weft.examples.kv.Kv"
  std::string_view method() const { return context_.method().name; }
  // With the metadata of both directions, the peer and the deadline.
  ServerContext& context() const { return context_; }
  // Null: the method takes a stream of them. REQUIRES: Request is what the method's handler takes.
  template <class Request>
  const Request* request() const {
    const MethodKind kind = context_.method().kind;
    if (kind == MethodKind::kClientStreaming || kind == MethodKind::kBidiStreaming) return nullptr;
    return internal::BodyAs<Request>(static_cast<const internal::HandledCall&>(context_).request());
  }
  // An attempt whose handler does not run, because that of an earlier one does, or has.
  bool is_repeated() const { return is_repeated_; }
  // In ServerInterceptor::OnEnd(): since its OnStart().
  uint64_t elapsed_ns() const { return elapsed_ns_; }

  // An interceptor's own, from OnStart() to OnEnd(); null at first. In Executor::For(): nobody's.
  void*& data() { return *data_; }

 private:
  friend class ServerExtras;

  const std::string_view service_;
  ServerContext& context_;
  const bool is_repeated_;
  uint64_t elapsed_ns_ = 0;
  void* unused_ = nullptr;
  void** data_ = &unused_;
};

}  // namespace weft
