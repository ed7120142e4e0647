#include "rpc/server/policy_file.h"

#include <utility>

#include "core/log.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/read_file.h"

namespace weft {

absl::StatusOr<std::unique_ptr<PolicyFile>> PolicyFile::Open(const std::string& path) {
  std::unique_ptr<PolicyFile> self(new PolicyFile(path));
  (void)LookForChange(path, &self->stamp_);  // before it is read: a later change is seen later
  self->text_ = self->Read();
  WEFT_ASSIGN_OR_RETURN(AccessPolicy policy, self->Parse(self->text_));
  self->policy_ = std::make_shared<const AccessPolicy>(std::move(policy));
  self->WarnIfItPermitsNothing();
  return self;
}

void PolicyFile::WarnIfItPermitsNothing() const {
  if (!PermitsNothing()) return;
  WEFT_LOG(kWarning, "policy file ", path_,
           " permits nothing to anybody: no rule begins with `allow`, or `deny anyone` takes back "
           "all that such rules allow");
}

absl::StatusOr<std::string> PolicyFile::Read() const {
  return ReadRegularFile(path_, AccessPolicy::kMaxBytes, StrCat("policy file ", path_));
}

absl::StatusOr<AccessPolicy> PolicyFile::Parse(const absl::StatusOr<std::string>& text) const {
  WEFT_RETURN_IF_ERROR(text.status());
  absl::StatusOr<AccessPolicy> policy = AccessPolicy::Parse(*text);
  if (!policy.ok()) return Annotate(policy.status(), StrCat("policy file ", path_));
  return policy;
}

uint64_t PolicyFile::Generation(uint64_t now_ns) {
  uint64_t next_ns = next_look_ns_.load(std::memory_order_relaxed);
  if (now_ns >= next_ns &&
      next_look_ns_.compare_exchange_strong(next_ns, kLooking, std::memory_order_acquire)) {
    Renew();
    next_look_ns_.store(now_ns + kLookIntervalNs, std::memory_order_release);
  }
  return generation_.load(std::memory_order_acquire);
}

void PolicyFile::Renew() {
  if (!LookForChange(path_, &stamp_)) return;
  absl::StatusOr<std::string> text = Read();
  // What does not come of what stands there may pass: it is read again.
  if (!text.ok() && !absl::IsInvalidArgument(text.status())) stamp_.reset();
  if (text == text_) return;  // one that cannot be used is not tried again before it changes
  text_ = std::move(text);
  absl::StatusOr<AccessPolicy> read = Parse(text_);
  if (!read.ok()) {
    WEFT_LOG(kError, "a changed policy file cannot be used, the old rules stay in use: ",
             ToStd(read.status().message()));
    return;
  }
  auto policy = std::make_shared<const AccessPolicy>(*std::move(read));
  const size_t rules = policy->rules();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    policy_.swap(policy);
    generation_.fetch_add(1, std::memory_order_release);
  }
  WEFT_LOG(kInfo, "policy file ", path_, " has changed: ", rules, " rules are in use");
  WarnIfItPermitsNothing();
}

std::shared_ptr<const AccessPolicy> PolicyFile::policy() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return policy_;
}

Authorizer::Decision PolicyFile::Decide(const PathInfo& path, std::string_view service,
                                        std::string_view method) {
  return policy()->Decide(path.identity, service, method);
}

std::string PolicyFile::RuleText(uint32_t rule) const {
  return rule == 0 ? StrCat("no rule of ", path_, " allows it")
                   : StrCat("line ", rule, " of ", path_);
}

}  // namespace weft
