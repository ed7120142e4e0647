// Everything that code written by protoc-gen-weft includes. Not for direct use.
//
// Threads: pure functions. Lifetime: what they make lives on the arena that they are given.
#pragma once

#include <google/protobuf/arena.h>
#include <google/protobuf/message_lite.h>

#include <utility>

#include "absl/status/status.h"
#include "core/function.h"
#include "rpc/layout/fixed_layout.h"
#include "rpc/layout/layout_copy.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/server/server_context.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/service.h"
#include "weft/channel.h"

namespace weft {

// weft/coroutine.h
class CallAwaiter;
template <class T>
class Task;

}  // namespace weft

namespace weft::internal {

template <class M>
M* MakeOnArena(google::protobuf::Arena* arena) {
#if GOOGLE_PROTOBUF_VERSION >= 5026000
  return google::protobuf::Arena::Create<M>(arena);
#else
  return google::protobuf::Arena::CreateMessage<M>(arena);
#endif
}

template <class M>
CallBody MakeBody(google::protobuf::Arena* arena) {
  CallBody body;
  if constexpr (FixedLayout<M>) {
    body.record = google::protobuf::Arena::Create<M>(arena);
  } else {
    body.message = MakeOnArena<M>(arena);
  }
  return body;
}

// MethodDescriptor::make_messages.
template <class Request, class Reply>
void MakeMessages(google::protobuf::Arena* arena, CallBody* request, CallBody* reply) {
  *request = MakeBody<Request>(arena);
  *reply = MakeBody<Reply>(arena);
}

// MethodDescriptor::start. kStart is `&Kv::Service::StartGet`.
template <class S, class Request, class Reply, void (S::*kStart)(UnaryCall<Request, Reply>)>
void StartUnary(Service& service, HandledCall& call) {
  (static_cast<S&>(service).*kStart)(UnaryCall<Request, Reply>(call));
}

// The same of a method of one-way messages.
template <class S, class Request, class Reply, void (S::*kStart)(UnaryCall<Request, Reply>)>
void StartOneWay(Service& service, HandledCall& call) {
  if (EndUnlessOneWay(call)) return;
  (static_cast<S&>(service).*kStart)(UnaryCall<Request, Reply>(call));
}

// The call of a stub's form that is awaited, or has no reply.
inline LayoutCall MessageCallOf(const google::protobuf::MessageLite& request,
                                google::protobuf::MessageLite* reply) {
  LayoutCall call = {};
  call.request = &request;
  call.reply.message = reply;
  return call;
}

// --- structs of fixed layout (method_layouts.h) -------------------------------------------------

template <class M>
constexpr LayoutSide SideOf(bool fixed) {
  if constexpr (FixedLayout<M>) {
    return {&kLayoutType<M>, fixed ? sizeof(M) : 0};
  } else {
    return {};
  }
}

// Of a method whose request and reply are kept as these; those that are structs travel as such, or
// as protobuf.
template <class Request, class Reply, bool kFixedRequest, bool kFixedReply>
inline constexpr MethodLayouts kMethodLayouts = {SideOf<Request>(kFixedRequest),
                                                 SideOf<Reply>(kFixedReply)};

// The call of a stub's form that takes structs.
template <class Request, class Reply>
LayoutCall LayoutCallOf(const Request& request, Reply* reply) {
  LayoutCall call;
  call.layouts = &kMethodLayouts<Request, Reply, true, true>;
  if constexpr (FixedLayout<Request>) {
    call.request_record = &request;
  } else {
    call.request = &request;
  }
  if constexpr (FixedLayout<Reply>) {
    call.reply.record = reply;
  } else {
    call.reply.message = reply;
  }
  return call;
}

// The same without a reply, of the method's type.
template <class Reply, class Request>
LayoutCall OneWayCallOf(const Request& request) {
  return LayoutCallOf<Request, Reply>(request, nullptr);
}

}  // namespace weft::internal
