#include "c/stream.h"

#include <string_view>
#include <utility>

#include "c/channel.h"
#include "c/methods.h"
#include "c/server.h"
#include "c/status.h"
#include "core/strings.h"

namespace weft::c {
namespace {

using Operation = weft_stream::Operation;

// The callback of a read or a write. It holds the stream until it has run, or is dropped.
class Ended {
 public:
  Ended(weft_stream* stream, Operation operation, weft_stream_done done, void* arg)
      : stream_(stream), done_(done), arg_(arg), operation_(operation) {
    stream_->AddHolder();
  }
  Ended(Ended&& from) noexcept
      : stream_(std::exchange(from.stream_, nullptr)),
        done_(from.done_),
        arg_(from.arg_),
        operation_(from.operation_) {}
  Ended& operator=(Ended&&) = delete;
  ~Ended() {
    if (stream_ != nullptr) stream_->DropHolder();
  }

  void operator()(bool ok) {
    stream_->End(operation_);  // the callback may begin the next one
    done_(arg_, ok ? 1 : 0);
  }

 private:
  weft_stream* stream_;
  weft_stream_done done_;
  void* arg_;
  Operation operation_;
};
static_assert(Function<void(bool)>::FitsInline<Ended>());

// Whether this side may begin such an operation now; begins it.
absl::Status Begin(std::string_view function, weft_stream* stream, Operation operation) {
  const bool may = operation == weft_stream::kRead    ? stream->reads
                   : operation == weft_stream::kWrite ? stream->writes
                                                      : stream->client != nullptr;
  if (!may) {
    return Invalid(function, stream->client == nullptr
                                 ? "the handler of this method's kind does not do that"
                                 : "the caller of this method's kind does not do that");
  }
  if (stream->Begin(operation)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      StrCat(function, "(): another one of this stream waits; one at a time"));
}

}  // namespace
}  // namespace weft::c

using weft::c::BytesMessage;
using weft::c::Ended;
using weft::c::SpanOf;
using weft::c::ToC;

weft_status* weft_stream_start(weft_channel* channel, weft_method method, weft_bytes request,
                               const weft_call_options* options, weft_message* reply,
                               weft_stream** stream) {
  WEFT_C_REQUIRE(stream);
  *stream = nullptr;
  WEFT_C_REQUIRE(channel);
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckCall(__func__, *channel, method, /*as_stream=*/true, request, reply));
  weft::c::ReadCallOptions read;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadOptionsOfCall(options, &read));
  const weft::MethodKind kind = weft::c::KindOf(method);
  const BytesMessage message(SpanOf(request));
  auto made = std::make_unique<weft_stream>();
  made->client = weft::internal::StartStream(*channel->channel, weft::c::NumberOf(method),
                                             weft::c::HasOneRequest(kind) ? &message : nullptr,
                                             weft::c::HasOneReply(kind) ? &reply->bytes : nullptr,
                                             read.options);
  made->handle = weft::internal::HandleOf(*made->client);
  made->reads = !weft::c::HasOneReply(kind);
  made->writes = !weft::c::HasOneRequest(kind);
  made->context = std::move(read.context);
  made->of_channel = weft::c::Use(channel->uses);
  *stream = made.release();
  return nullptr;
}

weft_stream* weft_server_call_stream(weft_server_call* call) {
  if (call == nullptr || call->call == nullptr) return nullptr;
  const weft::MethodKind kind = call->call->method().kind;
  if (!weft::c::IsStream(kind)) return nullptr;
  if (call->stream == nullptr) {
    call->stream = new weft_stream;
    call->stream->handle = weft::internal::StreamOf(*call->call);
    call->stream->reads = !weft::c::HasOneRequest(kind);
    call->stream->writes = !weft::c::HasOneReply(kind);
  }
  return call->stream;
}

// --- both sides ---------------------------------------------------------------------------------

int weft_stream_read(weft_stream* stream, weft_message* into) {
  if (stream == nullptr || into == nullptr || !stream->reads || !stream->Begin(weft_stream::kRead))
    return 0;
  const bool ok = stream->handle.Read(&into->bytes);
  stream->End(weft_stream::kRead);
  return ok ? 1 : 0;
}

int weft_stream_write(weft_stream* stream, weft_bytes message, int last) {
  if (stream == nullptr || !weft::c::AreBytes(message) || !stream->writes ||
      !stream->Begin(weft_stream::kWrite)) {
    return 0;
  }
  const BytesMessage bytes(SpanOf(message));
  const bool ok = stream->handle.Write(bytes, last != 0);
  stream->End(weft_stream::kWrite);
  return ok ? 1 : 0;
}

weft_status* weft_stream_read_start(weft_stream* stream, weft_message* into, weft_stream_done done,
                                    void* arg) {
  WEFT_C_REQUIRE(stream);
  WEFT_C_REQUIRE(into);
  WEFT_C_REQUIRE(done);
  WEFT_C_RETURN_IF_ERROR(weft::c::Begin(__func__, stream, weft_stream::kRead));
  stream->handle.Read(&into->bytes, Ended(stream, weft_stream::kRead, done, arg));
  return nullptr;
}

weft_status* weft_stream_write_start(weft_stream* stream, weft_bytes message, int last,
                                     weft_stream_done done, void* arg) {
  WEFT_C_REQUIRE(stream);
  WEFT_C_REQUIRE(done);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "message", message));
  WEFT_C_RETURN_IF_ERROR(weft::c::Begin(__func__, stream, weft_stream::kWrite));
  stream->written.Refer(SpanOf(message));
  stream->handle.Write(stream->written, last != 0, Ended(stream, weft_stream::kWrite, done, arg));
  return nullptr;
}

// --- the caller's -------------------------------------------------------------------------------

void weft_stream_writes_done(weft_stream* stream) {
  if (stream != nullptr && stream->client != nullptr && stream->writes) stream->handle.WritesDone();
}

weft_status* weft_stream_finish(weft_stream* stream) {
  WEFT_C_REQUIRE(stream);
  WEFT_C_RETURN_IF_ERROR(weft::c::Begin(__func__, stream, weft_stream::kFinish));
  weft_status* const status = ToC(weft::internal::FinishStream(*stream->client));
  stream->End(weft_stream::kFinish);
  return status;
}

weft_status* weft_stream_finish_start(weft_stream* stream, weft_done done, void* arg) {
  WEFT_C_REQUIRE(stream);
  WEFT_C_REQUIRE(done);
  WEFT_C_RETURN_IF_ERROR(weft::c::Begin(__func__, stream, weft_stream::kFinish));
  stream->AddHolder();
  weft::internal::FinishStream(*stream->client, [stream, done, arg](absl::Status status) {
    stream->End(weft_stream::kFinish);
    stream->DropHolder();
    weft::c::CallDone(done, arg, std::move(status));
  });
  return nullptr;
}

void weft_stream_cancel(weft_stream* stream) {
  if (stream != nullptr && stream->client != nullptr) weft::internal::CancelStream(*stream->client);
}

void weft_stream_free(weft_stream* stream) {
  if (stream == nullptr || stream->client == nullptr) return;
  weft::internal::ReleaseStream(stream->client);
  stream->of_channel = {};
  stream->DropHolder();
}
