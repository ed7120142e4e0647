// What code written by protoc-gen-weft includes beside generated.h where methods are streams. Not
// for direct use.
#pragma once

#include "absl/status/status.h"
#include "rpc/client/client_stream_handles.h"
#include "rpc/server/server_stream_handles.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/service.h"

namespace weft::internal {

// A method of streams that was called as if it had none. True: the call has ended.
inline bool EndUnlessStream(HandledCall& call) {
  if (StreamOf(call).stream != nullptr) return false;
  call.Finish(absl::UnimplementedError("the method is a stream; it was called without one"));
  return true;
}

// MethodDescriptor::start. kStart is `&Kv::Service::StartWatch`.
template <class S, class Request, class Reply, void (S::*kStart)(ServerReader<Request>, Reply*)>
void StartClientStreaming(Service& service, HandledCall& call) {
  if (EndUnlessStream(call)) return;
  (static_cast<S&>(service).*kStart)(ServerReader<Request>(call), BodyAs<Reply>(call.reply()));
}

template <class S, class Request, class Reply,
          void (S::*kStart)(const Request&, ServerWriter<Reply>)>
void StartServerStreaming(Service& service, HandledCall& call) {
  if (EndUnlessStream(call)) return;
  (static_cast<S&>(service).*kStart)(*BodyAs<Request>(call.request()), ServerWriter<Reply>(call));
}

template <class S, class Request, class Reply,
          void (S::*kStart)(ServerReaderWriter<Reply, Request>)>
void StartBidiStreaming(Service& service, HandledCall& call) {
  if (EndUnlessStream(call)) return;
  (static_cast<S&>(service).*kStart)(ServerReaderWriter<Reply, Request>(call));
}

}  // namespace weft::internal
