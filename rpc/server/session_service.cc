#include "rpc/server/session_service.h"

#include <google/protobuf/arena.h>

#include "core/strings.h"
#include "rpc/server/server_core.h"
#include "rpc/server/unary_call.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/sessions.pb.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

void MakeMessages(google::protobuf::Arena* arena, CallBody* request, CallBody* reply) {
  request->message = rpc::SessionRequest::default_instance().New(arena);
  reply->message = rpc::SessionReply::default_instance().New(arena);
}

}  // namespace

const ServiceDescriptor& SessionService::weft_descriptor() const {
  static constexpr MethodDescriptor kMethods[] = {
      {"Renew", "weft.rpc.SessionRequest", "weft.rpc.SessionReply", &MakeMessages, &Start}};
  static constexpr ServiceDescriptor kDescriptor = {kSessionServiceName, kMethods};
  return kDescriptor;
}

SessionService::SessionService(ServerCore& core)
    : core_(core), entry_{&weft_descriptor().methods[0], this, nullptr} {}

const MethodEntry* SessionService::Find(uint16_t method) const {
  if (method != kSessionMethod || core_.options().max_sessions == 0 || core_.draining()) {
    return nullptr;
  }
  return &entry_;
}

void SessionService::Start(Service& service, internal::HandledCall& call) {
  ServerCore& core = static_cast<SessionService&>(service).core_;
  const auto& request = *internal::BodyAs<rpc::SessionRequest>(call.request());
  const SessionId asked = {request.high(), request.low()};
  const auto& given_up = request.given_up();
  if (static_cast<uint64_t>(given_up.size()) > kMaxSessionCalls) {
    return call.Finish(
        NotRunError(absl::StatusCode::kInvalidArgument,
                    StrCat("a session's client gives up ", given_up.size(), " calls at once; ",
                           kMaxSessionCalls, " are allowed (not run)")));
  }
  if (request.end() && asked == SessionId()) {
    return call.Finish(NotRunError(absl::StatusCode::kInvalidArgument,
                                   "a client ends a session, and names none (not run)"));
  }
  const absl::StatusOr<SessionId> session =
      core.records().Renew(asked, static_cast<ServerCall&>(call).connection());
  if (!session.ok()) return call.Finish(absl::Status(session.status()));
  core.records().GiveUp(*session, {given_up.data(), static_cast<size_t>(given_up.size())});
  if (request.end()) core.records().End(*session);
  auto& reply = *internal::BodyAs<rpc::SessionReply>(call.reply());
  reply.set_high(session->high);
  reply.set_low(session->low);
  reply.set_lease_us(core.options().session_lease_us);
  call.Finish(absl::OkStatus());
}

}  // namespace weft
