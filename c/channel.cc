#include "c/channel.h"

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "c/methods.h"
#include "c/status.h"
#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/generated.h"

namespace weft::c {
namespace {

// Of all options in nanoseconds, which the library bounds by an hour at most.
constexpr uint64_t kMostUs = 3'600'000'000;

template <class T>
void Set(T* to, T from) {
  if (from != 0) *to = from;
}

absl::Status ReadChannelOptions(const weft_channel_options* given, ChannelOptions* to) {
  weft_channel_options from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_channel_options", given, &from));
  WEFT_RETURN_IF_ERROR(ReadSecurity(from.security, &to->security));
  WEFT_RETURN_IF_ERROR(ReadPaths(from.paths, &to->link));
  if (from.connect_timeout_us > kMostUs) {
    return absl::InvalidArgumentError(StrCat("weft_channel_options: connect_timeout_us is ",
                                             from.connect_timeout_us, "; at most ", kMostUs));
  }
  Set(&to->link.connect_timeout_ns, from.connect_timeout_us * kNsPerUs);
  to->default_timeout_us = from.default_timeout_us;
  Set(&to->max_reply_bytes, from.max_reply_bytes);
  to->retry.hedge_after_us = from.hedge_after_us;
  Set(&to->spin_ns, from.spin_ns);
  to->connect_at_once = from.connect_later == 0;
  Set(&to->retry.max_attempts, from.max_attempts);
  to->retry.exactly_once = from.exactly_once != 0;
  Set(&to->max_outstanding_calls, from.max_outstanding_calls);
  Set(&to->max_queued_calls, from.max_queued_calls);
  Set(&to->max_streams, from.max_streams);
  Set(&to->stream_window_messages, from.stream_window_messages);
  Set(&to->stream_window_bytes, from.stream_window_bytes);
  if (from.server_engine > kMaxEngines) {
    return absl::InvalidArgumentError(StrCat("weft_channel_options: server_engine is ",
                                             from.server_engine, "; at most ", kMaxEngines));
  }
  if (from.server_engine != 0) to->link.server_engine = from.server_engine - 1;
  return CheckReserved("weft_channel_options", from.reserved);
}

// Of weft/c.h, where the default is 0.
absl::StatusOr<Priority> ReadPriority(int32_t priority) {
  switch (priority) {
    case WEFT_NORMAL:
      return Priority::kNormal;
    case WEFT_CONTROL:
      return Priority::kControl;
    case WEFT_BACKGROUND:
      return Priority::kBackground;
    default:
      return absl::InvalidArgumentError(
          StrCat("weft_call_options: priority is ", priority,
                 "; it is WEFT_NORMAL, WEFT_CONTROL or WEFT_BACKGROUND: 0 to 2"));
  }
}

}  // namespace

int EntryOf(const Metadata& metadata, size_t index, weft_bytes* key, weft_bytes* value) {
  if (index >= metadata.size()) return 0;
  const Metadata::Entry& entry = metadata.begin()[static_cast<ptrdiff_t>(index)];
  *key = ToC(std::string_view(entry.key));
  *value = ToC(std::string_view(entry.value));
  return 1;
}

absl::Status ReadOptionsOfCall(const weft_call_options* given, ReadCallOptions* read) {
  if (given == nullptr) return absl::OkStatus();
  weft_call_options from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_call_options", given, &from));
  WEFT_RETURN_IF_ERROR(CheckReserved("weft_call_options", from.reserved));
  CallOptions& to = read->options;
  WEFT_ASSIGN_OR_RETURN(to.priority, ReadPriority(from.priority));
  to.timeout_us = from.timeout_us;
  to.wait_for_server = from.wait_for_server != 0;
  to.no_retry = from.no_retry != 0;
  if (from.context != nullptr) {
    read->context = from.context->context;
    to.context = read->context.get();
  }
  return absl::OkStatus();
}

absl::Status CheckCall(std::string_view function, const weft_channel& channel, weft_method method,
                       bool as_stream, weft_bytes request, const weft_message* reply) {
  WEFT_RETURN_IF_ERROR(CheckBytes(function, "request", request));
  const MethodKind kind = KindOf(method);
  if (kind < MethodKind::kUnary || kind > MethodKind::kOneWay ||
      NumberOf(method) >= channel.methods.load(std::memory_order_relaxed)) {
    return Invalid(function, StrCat("method is ", method,
                                    "; weft_channel_method() gives this channel's numbers"));
  }
  if (IsStream(kind) != as_stream) {
    return Invalid(function, as_stream ? "the method is no stream: weft_call() is for it"
                                       : "the method is a stream: weft_stream_start() is for it");
  }
  if (HasOneReply(kind) && reply == nullptr) {
    return Invalid(function, "reply is NULL, and the method has one");
  }
  if (!HasOneRequest(kind) && request.size != 0) {
    return Invalid(function, "the method takes a stream of messages: request has to be empty");
  }
  return absl::OkStatus();
}

}  // namespace weft::c

using weft::c::BytesMessage;
using weft::c::CallDone;
using weft::c::KindOf;
using weft::c::NumberOf;
using weft::c::ReadCallOptions;
using weft::c::SpanOf;
using weft::c::ToC;

// --- channel ------------------------------------------------------------------------------------

weft_status* weft_channel_open(weft_engine* engine, const char* address,
                               const weft_channel_options* options, weft_channel** channel) {
  WEFT_C_REQUIRE(channel);
  *channel = nullptr;
  WEFT_C_REQUIRE(address);
  weft::ChannelOptions read;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadChannelOptions(options, &read));
  auto made = std::make_unique<weft_channel>();
  absl::StatusOr<std::unique_ptr<weft::Channel>> opened =
      engine == nullptr ? weft::Channel::Open(address, read)
                        : weft::Channel::Open(*engine->engine, address, read);
  WEFT_C_RETURN_IF_ERROR(opened.status());
  made->channel = *std::move(opened);
  made->own_engine.engine = &made->channel->engine();
  made->engine = engine == nullptr ? &made->own_engine : engine;
  if (engine != nullptr) made->of_engine = weft::c::Use(engine->uses);
  *channel = made.release();
  return nullptr;
}

weft_status* weft_channel_free(weft_channel* channel) {
  if (channel == nullptr) return nullptr;
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckUnused(
      channel->uses, "the channel has streams, buffers, exports or remote memory"));
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckUnused(channel->own_engine.uses, "the channel's engine has users"));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckNotInCallback(__func__, *channel->engine));
  delete channel;
  return nullptr;
}

weft_engine* weft_channel_engine(weft_channel* channel) {
  return channel == nullptr ? nullptr : channel->engine;
}

weft_status* weft_channel_explain(weft_channel* channel, weft_message* text) {
  WEFT_C_REQUIRE(channel);
  WEFT_C_REQUIRE(text);
  text->bytes.Copy(weft::AsBytes(channel->channel->Explain()));
  return nullptr;
}

weft_status* weft_channel_method(weft_channel* channel, const char* service, const char* method,
                                 int kind, int idempotency, weft_method* number) {
  WEFT_C_REQUIRE(number);
  *number = 0;
  WEFT_C_REQUIRE(channel);
  WEFT_C_REQUIRE(service);
  WEFT_C_REQUIRE(method);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckServiceName(service));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckMethodName(method));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckMethodKind(kind, idempotency));
  const absl::StatusOr<const weft::ServiceDescriptor*> descriptor =
      weft::c::InternMethod(service, method, kind, idempotency);
  WEFT_C_RETURN_IF_ERROR(descriptor.status());
  const uint32_t bound = channel->channel->Bind(**descriptor);
  if (bound >= weft::c::kMostBound) {
    return ToC(absl::ResourceExhaustedError(weft::StrCat("this channel has named ",
                                                         weft::c::kMostBound, " methods, and ",
                                                         service, ".", method, " is one more")));
  }
  uint32_t known = channel->methods.load(std::memory_order_relaxed);
  while (known <= bound &&
         !channel->methods.compare_exchange_weak(known, bound + 1, std::memory_order_relaxed)) {
  }
  *number = weft::c::ToMethod(bound, kind);
  return nullptr;
}

// --- message ------------------------------------------------------------------------------------

weft_message* weft_message_new(void) { return new weft_message; }

weft_bytes weft_message_bytes(const weft_message* message) {
  return message == nullptr ? weft_bytes{nullptr, 0} : ToC(message->bytes.bytes());
}

void weft_message_free(weft_message* message) { delete message; }

// --- calls --------------------------------------------------------------------------------------

weft_status* weft_call(weft_channel* channel, weft_method method, weft_bytes request,
                       const weft_call_options* options, weft_message* reply) {
  WEFT_C_REQUIRE(channel);
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckCall(__func__, *channel, method, /*as_stream=*/false, request, reply));
  ReadCallOptions read;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadOptionsOfCall(options, &read));
  const BytesMessage message(SpanOf(request));
  if (KindOf(method) == weft::MethodKind::kOneWay) {
    return ToC(channel->channel->SendOneWay(
        NumberOf(method), weft::internal::MessageCallOf(message, nullptr), read.options));
  }
  return ToC(channel->channel->Call(NumberOf(method), message, &reply->bytes, read.options));
}

weft_status* weft_call_start(weft_channel* channel, weft_method method, weft_bytes request,
                             const weft_call_options* options, weft_message* reply, weft_done done,
                             void* arg) {
  WEFT_C_REQUIRE(channel);
  WEFT_C_REQUIRE(done);
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckCall(__func__, *channel, method, /*as_stream=*/false, request, reply));
  ReadCallOptions read;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadOptionsOfCall(options, &read));
  const BytesMessage message(SpanOf(request));
  auto ended = [done, arg, context = std::move(read.context)](absl::Status status) {
    CallDone(done, arg, std::move(status));
  };
  static_assert(weft::Function<void(absl::Status)>::FitsInline<decltype(ended)>());
  if (KindOf(method) == weft::MethodKind::kOneWay) {
    channel->channel->SendOneWay(NumberOf(method), weft::internal::MessageCallOf(message, nullptr),
                                 read.options, std::move(ended));
  } else {
    channel->channel->Call(NumberOf(method), message, &reply->bytes, read.options,
                           std::move(ended));
  }
  return nullptr;
}

// --- context ------------------------------------------------------------------------------------

weft_context* weft_context_new(void) {
  return new weft_context{std::make_shared<weft::ClientContext>()};
}

weft_status* weft_context_add_metadata(weft_context* context, weft_bytes key, weft_bytes value) {
  WEFT_C_REQUIRE(context);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "key", key));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "value", value));
  return ToC(context->context->AddMetadata(weft::c::TextOf(key), weft::c::TextOf(value)));
}

weft_status* weft_context_cancel(weft_context* context) {
  WEFT_C_REQUIRE(context);
  return ToC(context->context->Cancel());
}

int weft_context_reply_metadata(const weft_context* context, size_t index, weft_bytes* key,
                                weft_bytes* value) {
  if (context == nullptr || key == nullptr || value == nullptr) return 0;
  return weft::c::EntryOf(context->context->reply_metadata(), index, key, value);
}

void weft_context_free(weft_context* context) { delete context; }
