#include "c/server.h"

#include <utility>

#include "absl/status/statusor.h"
#include "c/channel.h"
#include "c/host.h"
#include "c/methods.h"
#include "c/status.h"
#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "weft/path.h"

namespace weft::c {
namespace {

using internal::HandledCall;

// DispatchTable's are 65,533 of a server, and a client knows 2,048: more are no use.
constexpr size_t kMostMethods = 4096;
// Weft's largest message.
constexpr size_t kMostReplyBytes = size_t{64} << 20;

void MakeMessages(google::protobuf::Arena* arena, CallBody* request, CallBody* reply) {
  request->message = google::protobuf::Arena::Create<BytesMessage>(arena);
  reply->message = google::protobuf::Arena::Create<weft_server_call>(arena);
}

weft_server_call& HandleOf(HandledCall& call) {
  return *internal::BodyAs<weft_server_call>(call.reply());
}

void RunHandler(Service& service, HandledCall& call) {
  auto& ours = static_cast<weft_service&>(service);
  const MethodDescriptor& method = call.method();
  if (method.kind == MethodKind::kOneWay ? internal::EndUnlessOneWay(call)
                                         : IsStream(method.kind) && internal::EndUnlessStream(call))
    return;
  weft_server_call& handle = HandleOf(call);
  handle.call = &call;
  const auto& handler = ours.handlers[static_cast<size_t>(&method - ours.methods.data())];
  handler.run(handler.arg, &handle);
}

template <class T>
void Set(T* to, T from) {
  if (from != 0) *to = from;
}

absl::Status ReadServerOptions(const weft_server_options* given, bool has_engine,
                               weft_server* server, ServerOptions* to) {
  weft_server_options from;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_server_options", given, &from));
  WEFT_RETURN_IF_ERROR(CheckReserved("weft_server_options", from.reserved));
  WEFT_RETURN_IF_ERROR(ReadSecurity(from.security, &to->security));
  WEFT_RETURN_IF_ERROR(ReadPaths(from.paths, &to->link));
  to->name = StringOf(from.name);
  if (from.policy_file != nullptr) {
    WEFT_ASSIGN_OR_RETURN(server->policy, PolicyFile::Open(from.policy_file));
    to->authorizer = server->policy.get();
  }
  Set(&to->max_request_bytes, from.max_request_bytes);
  Set(&to->max_running_bytes, from.max_running_bytes);
  Set(&to->max_unsent_reply_bytes, from.max_unsent_reply_bytes);
  Set(&to->spin_ns, from.spin_ns);
  Set(&to->max_connections, from.max_connections);
  to->max_connections_of_one = from.max_connections_of_one;
  to->limits.idle_timeout_us = from.idle_timeout_us;
  Set(&to->max_outstanding_calls, from.max_outstanding_calls);
  Set(&to->max_streams, from.max_streams);
  Set(&to->stream_window_messages, from.stream_window_messages);
  Set(&to->stream_window_bytes, from.stream_window_bytes);
  to->log_allowed_calls = from.log_allowed_calls != 0;
  if (from.log != nullptr && has_engine) {
    return absl::InvalidArgumentError(
        "weft_server_options: log is of a server without an engine; this one's engine has a log of "
        "its own (weft_engine_options)");
  }
  WEFT_RETURN_IF_ERROR(ReadLog(from.log, &server->own_engine.log, &to->log));
  if (from.executor == nullptr) return absl::OkStatus();
  weft_executor executor;
  WEFT_RETURN_IF_ERROR(ReadOptions("weft_executor", from.executor, &executor));
  if (executor.run == nullptr) return absl::InvalidArgumentError("weft_executor: run is NULL");
  to->executor = &server->executor.emplace(executor);
  return absl::OkStatus();
}

// What a handler has finished with; the reply is in `handle`.
absl::Status OutcomeOf(weft_server_call& handle, weft_status* status, weft_bytes reply) {
  const MethodDescriptor& method = handle.call->method();
  if (status != nullptr) return FromC(status);
  if (!AreBytes(reply)) {
    return absl::InternalError(
        StrCat("the handler of ", method.name, " gave ", reply.size, " bytes at NULL"));
  }
  if (!HasOneReply(method.kind)) {
    if (reply.size == 0) return absl::OkStatus();
    return absl::InternalError(StrCat("the handler of ", method.name, " gave a reply of ",
                                      reply.size, " bytes, and the method has none"));
  }
  if (reply.size > kMostReplyBytes) {
    return absl::ResourceExhaustedError(StrCat("the reply of method ", method.name, " has ",
                                               reply.size, " bytes; at most ", kMostReplyBytes,
                                               " (the request has run)"));
  }
  if (handle.IsReserved(reply.data, reply.size)) {
    handle.Refer(SpanOf(reply));
  } else {
    handle.Copy(SpanOf(reply));
  }
  return absl::OkStatus();
}

void RunTask(void* task) {
  const std::unique_ptr<Function<void()>> owned(static_cast<Function<void()>*>(task));
  (*owned)();
}

}  // namespace

bool HostExecutor::Run(Function<void()> task) {
  auto held = std::make_unique<Function<void()>>(std::move(task));
  if (host_.run(host_.arg, RunTask, held.get()) == 0) return false;
  held.release();  // the task's, which may have run by now
  return true;
}

}  // namespace weft::c

using weft::c::HasOneReply;
using weft::c::ToC;

weft_server_call::~weft_server_call() {
  if (stream != nullptr) stream->DropHolder();
}

// --- service ------------------------------------------------------------------------------------

weft_service* weft_service_new(const char* full_name) {
  return full_name == nullptr ? nullptr : new weft_service(full_name);
}

weft_status* weft_service_add_method(weft_service* service, const char* name, int kind,
                                     int idempotency, weft_handler handler, void* arg) {
  WEFT_C_REQUIRE(service);
  WEFT_C_REQUIRE(name);
  WEFT_C_REQUIRE(handler);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckMethodName(name));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckMethodKind(kind, idempotency));
  for (const auto& known : service->method_names) {
    if (*known == name) {
      return ToC(absl::AlreadyExistsError(
          weft::StrCat("service ", service->name, " has a method ", name, " already")));
    }
  }
  if (service->methods.size() >= weft::c::kMostMethods) {
    return ToC(absl::ResourceExhaustedError(weft::StrCat(
        "service ", service->name, ": a service has at most ", weft::c::kMostMethods, " methods")));
  }
  weft::MethodDescriptor method;
  method.name = *service->method_names.emplace_back(std::make_unique<const std::string>(name));
  method.request_type = method.reply_type = "bytes";
  method.make_messages = weft::c::MakeMessages;
  method.start = weft::c::RunHandler;
  method.kind = static_cast<weft::MethodKind>(kind);
  method.idempotency = static_cast<weft::Idempotency>(idempotency);
  service->methods.push_back(method);
  service->handlers.push_back({handler, arg});
  return nullptr;
}

void weft_service_free(weft_service* service) { delete service; }

// --- server -------------------------------------------------------------------------------------

weft_status* weft_server_new(weft_engine* engine, const weft_server_options* options,
                             weft_server** server) {
  WEFT_C_REQUIRE(server);
  *server = nullptr;
  auto made = std::make_unique<weft_server>();
  weft::ServerOptions read;
  WEFT_C_RETURN_IF_ERROR(weft::c::ReadServerOptions(options, engine != nullptr, made.get(), &read));
  absl::StatusOr<std::unique_ptr<weft::Server>> created =
      engine == nullptr ? weft::Server::Create(read) : weft::Server::Create(*engine->engine, read);
  WEFT_C_RETURN_IF_ERROR(created.status());
  made->server = *std::move(created);
  made->own_engine.engine = &made->server->engine();
  made->own_engine.drive = weft::EngineOptions::Drive::kOwnThread;
  made->engine = engine == nullptr ? &made->own_engine : engine;
  if (engine != nullptr) made->of_engine = weft::c::Use(engine->uses);
  *server = made.release();
  return nullptr;
}

weft_status* weft_server_free(weft_server* server) {
  if (server == nullptr) return nullptr;
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckUnused(server->uses, "the server has exports"));
  WEFT_C_RETURN_IF_ERROR(
      weft::c::CheckUnused(server->own_engine.uses, "the server's engine has channels or servers"));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckNotInCallback(__func__, *server->engine));
  delete server;
  return nullptr;
}

weft_status* weft_server_add_service(weft_server* server, weft_service* service) {
  std::unique_ptr<weft_service> taken(service);
  WEFT_C_REQUIRE(server);
  WEFT_C_REQUIRE(service);
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckServiceName(service->name));
  service->descriptor.full_name = service->name;
  service->descriptor.methods = service->methods;
  WEFT_C_RETURN_IF_ERROR(server->server->AddService(service));
  server->services.push_back(std::move(taken));
  return nullptr;
}

weft_status* weft_server_listen(weft_server* server, const char* address) {
  WEFT_C_REQUIRE(server);
  WEFT_C_REQUIRE(address);
  WEFT_C_RETURN_IF_ERROR(server->server->Listen(address));
  if (server->address.empty()) server->address = server->server->address();
  return nullptr;
}

const char* weft_server_address(const weft_server* server) {
  return server == nullptr ? "" : server->address.c_str();
}

void weft_server_wait(weft_server* server) {
  if (server != nullptr && weft::c::MayWait(__func__, *server->engine)) server->server->Wait();
}

void weft_server_shutdown(weft_server* server, uint64_t grace_us) {
  if (server != nullptr && weft::c::MayWait(__func__, *server->engine)) {
    server->server->Shutdown(grace_us);
  }
}

weft_engine* weft_server_engine(weft_server* server) {
  return server == nullptr ? nullptr : server->engine;
}

// --- one call -----------------------------------------------------------------------------------

namespace {

bool IsOpen(const weft_server_call* call) { return call != nullptr && call->call != nullptr; }

}  // namespace

weft_bytes weft_server_call_request(const weft_server_call* call) {
  if (!IsOpen(call)) return {nullptr, 0};
  return ToC(weft::internal::BodyAs<weft::c::BytesMessage>(call->call->request())->bytes());
}

void* weft_server_call_reserve(weft_server_call* call, size_t size) {
  if (!IsOpen(call) || !HasOneReply(call->call->method().kind) || size > weft::c::kMostReplyBytes)
    return nullptr;
  return call->Reserve(size);
}

void weft_server_call_finish(weft_server_call* call, weft_status* status, weft_bytes reply) {
  if (!IsOpen(call)) {
    WEFT_LOG(kError, "weft_server_call_finish() of ",
             call == nullptr ? "NULL" : "a call that is finished", ": the program is wrong");
    return weft_status_free(status);
  }
  absl::Status outcome = weft::c::OutcomeOf(*call, status, reply);
  if (call->stream != nullptr) std::exchange(call->stream, nullptr)->DropHolder();
  // From here on it may be another call's.
  std::exchange(call->call, nullptr)->Finish(std::move(outcome));
}

int weft_server_call_cancelled(const weft_server_call* call) {
  return IsOpen(call) && call->call->cancelled() ? 1 : 0;
}

void weft_server_call_on_cancel(weft_server_call* call, weft_task task, void* arg) {
  if (!IsOpen(call) || task == nullptr) return;
  call->call->OnCancel([task, arg] { task(arg); });
}

uint64_t weft_server_call_remaining_us(const weft_server_call* call) {
  return IsOpen(call) ? call->call->remaining_us() : 0;
}

int weft_server_call_priority(const weft_server_call* call) {
  if (!IsOpen(call)) return WEFT_NORMAL;
  switch (call->call->priority()) {
    case weft::Priority::kControl:
      return WEFT_CONTROL;
    case weft::Priority::kBackground:
      return WEFT_BACKGROUND;
    default:
      return WEFT_NORMAL;
  }
}

int weft_server_call_metadata(const weft_server_call* call, size_t index, weft_bytes* key,
                              weft_bytes* value) {
  if (!IsOpen(call) || key == nullptr || value == nullptr) return 0;
  return weft::c::EntryOf(call->call->metadata(), index, key, value);
}

weft_status* weft_server_call_add_reply_metadata(weft_server_call* call, weft_bytes key,
                                                 weft_bytes value) {
  if (!IsOpen(call)) return weft::c::Missing(__func__, "call");
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "key", key));
  WEFT_C_RETURN_IF_ERROR(weft::c::CheckBytes(__func__, "value", value));
  return ToC(call->call->AddReplyMetadata(weft::c::TextOf(key), weft::c::TextOf(value)));
}

weft_bytes weft_server_call_peer(const weft_server_call* call, int what, size_t index) {
  if (!IsOpen(call)) return {nullptr, 0};
  const weft::PathInfo& path = call->call->path();
  const auto one = [index](std::string_view text) {
    return index == 0 && !text.empty() ? ToC(text) : weft_bytes{nullptr, 0};
  };
  const auto of = [index](const std::vector<std::string>& names) {
    return index < names.size() ? ToC(std::string_view(names[index])) : weft_bytes{nullptr, 0};
  };
  switch (what) {
    case WEFT_PEER_ADDRESS:
      return one(path.peer);
    case WEFT_PEER_PATH:
      return one(weft::PathKindName(path.kind));
    case WEFT_PEER_SUBJECT:
      return one(path.identity.subject);
    case WEFT_PEER_DNS_NAME:
      return of(path.identity.dns_names);
    case WEFT_PEER_URI:
      return of(path.identity.uris);
    case WEFT_PEER_PSK_NAME:
      return one(path.identity.psk_name);
    default:
      return {nullptr, 0};
  }
}

weft_context* weft_context_from_call(weft_server_call* call) {
  if (!IsOpen(call)) return nullptr;
  return new weft_context{weft::ClientContext::FromServerContext(*call->call)};
}
