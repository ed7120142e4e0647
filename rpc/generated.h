// Everything that code written by protoc-gen-weft includes. Not for direct use.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>

#include <utility>

#include "absl/status/status.h"
#include "core/function.h"
#include "rpc/call_options.h"
#include "rpc/channel.h"
#include "rpc/server_context.h"
#include "rpc/service.h"
#include "rpc/unary_call.h"

namespace weft::internal {

template <class M>
M* MakeOnArena(google::protobuf::Arena* arena) {
#if GOOGLE_PROTOBUF_VERSION >= 5026000
  return google::protobuf::Arena::Create<M>(arena);
#else
  return google::protobuf::Arena::CreateMessage<M>(arena);
#endif
}

// What a method answers that nobody has overridden: UNIMPLEMENTED, naming it.
absl::Status NotImplemented(const ServerContext& context);

// MethodDescriptor::make_messages.
template <class Request, class Reply>
void MakeMessages(google::protobuf::Arena* arena, google::protobuf::MessageLite** request,
                  google::protobuf::MessageLite** reply) {
  *request = MakeOnArena<Request>(arena);
  *reply = MakeOnArena<Reply>(arena);
}

// MethodDescriptor::start. kStart is `&Kv::Service::StartGet`.
template <class S, class Request, class Reply, void (S::*kStart)(UnaryCall<Request, Reply>)>
void StartUnary(Service& service, ServerCall& call) {
  (static_cast<S&>(service).*kStart)(UnaryCall<Request, Reply>(call));
}

}  // namespace weft::internal
