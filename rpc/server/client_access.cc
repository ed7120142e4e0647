#include "rpc/server/client_access.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "core/strings.h"
#include "rpc/server/audit_log.h"
#include "rpc/server/server_core.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/service.h"
#include "rpc/wire/status_text.h"

namespace weft {
namespace {

Authorizer::Decision Ask(Authorizer& authorizer, const PathInfo& path, const MethodEntry& entry) {
  return authorizer.Decide(path, entry.service->weft_descriptor().full_name, entry.method->name);
}

}  // namespace

ClientAccess::ClientAccess(ServerCore& core, const PathInfo& path)
    : core_(core),
      engine_(core.engine()),
      authorizer_(*core.options().authorizer),
      path_(path),
      methods_(core.methods().entries()),
      answers_(std::make_unique<Answer[]>(methods_)) {}

bool ClientAccess::Look(uint16_t number, uint64_t generation) {
  if (generation != generation_) {
    std::fill_n(answers_.get(), methods_, 0);
    any_ = 0;
    generation_ = generation;
  }
  const MethodEntry* const entry = core_.methods().Find(number);
  if (entry == nullptr) {
    if (core_.OwnMethod(number) == nullptr) return true;
    if (any_ == 0) any_ = MayCallAny() ? kKnown | kAllowed : kKnown;
    return IsAllowed(any_);
  }
  Answer& answer = answers_[number];
  if (answer != 0) return IsAllowed(answer);
  const Authorizer::Decision decision = Ask(authorizer_, path_, *entry);
  answer = decision.rule << 2 | (decision.allowed ? kAllowed : 0) | kKnown;
  if (decision.allowed && core_.options().log_allowed_calls) {
    core_.audit_log().Add({true, path_, entry->service->weft_descriptor().full_name,
                           entry->method->name, authorizer_, decision.rule},
                          engine_.turn_ns());
  }
  return decision.allowed;
}

bool ClientAccess::MayCallAny() const {
  for (size_t number = 0; number < methods_; ++number) {
    const MethodEntry* const entry = core_.methods().Find(static_cast<uint16_t>(number));
    if (Ask(authorizer_, path_, *entry).allowed) return true;
  }
  return false;
}

absl::Status ClientAccess::Refuse(uint16_t number) {
  const MethodEntry* const entry = core_.methods().Find(number);
  const bool own = entry == nullptr;  // one of the server's own
  const MethodEntry& refused = own ? *core_.OwnMethod(number) : *entry;
  const std::string_view service = refused.service->weft_descriptor().full_name;
  const std::string_view method = refused.method->name;
  ++core_.stats().denied;
  core_.audit_log().Add(
      {false, path_, service, method, authorizer_, own ? 0 : answers_[number] >> 2},
      engine_.turn_ns());
  std::string who = AuditIdentity(path_.identity);
  if (who.empty()) who = "a client that has not proved who it is";
  return NotRunError(absl::StatusCode::kPermissionDenied,
                     own ? StrCat("the server does not permit any method to ", who,
                                  ", and so no session (not run)")
                         : StrCat("the server does not permit method ", service, "/", method,
                                  " to ", who, " (not run)"));
}

}  // namespace weft
