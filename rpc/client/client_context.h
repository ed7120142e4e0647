// What a caller has in hand of one call beside request and reply: metadata and attachments both
// ways, and Cancel().
//
//   weft::ClientContext context;
//   kv.Get(request, &reply, {.context = &context}, [&](absl::Status status) { ... });
//   ...
//   context.Cancel();   // from any thread
//
// A call without a context pays nothing for it; one with a context takes a longer way, about half a
// microsecond more.
//
// Threads: Cancel() from any; AddMetadata() and SetAttachment() before the call is started,
//   reply_metadata() and reply_attachment() after its end, each by one thread at a time.
// Lifetime: for one call; a second one with the same context fails with FAILED_PRECONDITION. It
//   outlives the call. REQUIRES: not destroyed before the call has ended, nor inside Cancel().
#pragma once

#include <memory>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace weft {

class CallContext;
class Metadata;
class ServerContext;

class ClientContext {
 public:
  ClientContext();
  ~ClientContext();
  ClientContext(const ClientContext&) = delete;
  ClientContext& operator=(const ClientContext&) = delete;

  // For a call that a handler makes to answer its own: it is cancelled with that, has its deadline
  // at the latest, and carries its trace on (the metadata "traceparent" and "tracestate" of the W3C
  // recommendation Trace Context). REQUIRES: the handler's call is not finished.
  static std::unique_ptr<ClientContext> FromServerContext(ServerContext& context);

  // For the handler (ServerContext::metadata()). Errors: Metadata::Add()'s; FAILED_PRECONDITION:
  // the call has been started.
  absl::Status AddMetadata(std::string_view key, std::string_view value);

  // Travels behind the request, as it is: large bytes that are in no message. They are copied once,
  // piece by piece, into the memory that they are sent from, and must not change before the call's
  // end. A second one takes the place of the first; empty: none. FAILED_PRECONDITION: the call has
  // been started. The call fails, not sent, with RESOURCE_EXHAUSTED if message and attachment are
  // more than the server takes (max_request_bytes) or 64 MiB, UNIMPLEMENTED if the server takes
  // none, and INVALID_ARGUMENT if it is a stream.
  absl::Status SetAttachment(absl::Cord attachment);

  // Ends the call with CANCELLED, soon, if it has not ended by then, and tells the server, whose
  // handler sees ServerContext::cancelled(). What the handler has done stays done: DeliveryOf()
  // says whether it may have begun. Before the call: it will not be sent. After its end: nothing.
  // RESOURCE_EXHAUSTED: the engine's inbox is full, and nothing has happened; try again.
  absl::Status Cancel();

  // What the handler has sent (ServerContext::AddReplyMetadata()). Empty before the call's end.
  const Metadata& reply_metadata() const;

  // The same, of bytes behind the reply (ServerContext::SetReplyAttachment()). A copy of it keeps
  // the memory in which they were received (ServerContext::attachment()).
  const absl::Cord& reply_attachment() const;

 private:
  friend CallContext& ContextOf(ClientContext& context);

  const std::shared_ptr<CallContext> shared_;
};

}  // namespace weft
