#include "rpc/server/admission.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/strings.h"
#include "rpc/wire/service.h"
#include "rpc/wire/status_text.h"
#include "transport/identity.h"

namespace weft {
namespace {

// How many methods an error about an unknown one names: a line of them.
constexpr size_t kMethodsNamed = 5;

std::string FullName(const MethodEntry& entry) {
  return StrCat(entry.service->weft_descriptor().full_name, "/", entry.method->name);
}

absl::Status OverLimit(std::string_view text) {
  return NotRunError(absl::StatusCode::kResourceExhausted,
                     StrCat(text, " (not run, safe to retry elsewhere)"));
}

bool IsMethodName(std::string_view name) {
  const size_t slash = name.find('/');
  return slash != std::string_view::npos && slash > 0 && slash + 1 < name.size() &&
         name.find('/', slash + 1) == std::string_view::npos;
}

// A name in front of which stands how long it is: no two lists of names look alike.
void AppendName(std::string_view name, std::string* key) {
  absl::StrAppend(key, name.size(), ":", ToAbsl(name));
}

// Who has proved to be the same has the same; empty: nobody has. Nothing of a name is left out.
std::string IdentityKey(const PeerIdentity& identity) {
  std::string key;
  switch (identity.authentication) {
    case Authentication::kNone:
      return key;
    case Authentication::kCertificate:
      key = "certificate ";
      AppendName(identity.subject, &key);
      for (const std::string& name : identity.dns_names) AppendName(name, &(key += " dns "));
      for (const std::string& uri : identity.uris) AppendName(uri, &(key += " uri "));
      return key;
    case Authentication::kPreSharedKey:
      key = "secret ";
      AppendName(identity.psk_name, &key);
      return key;
    case Authentication::kKernelCredentials:
      if (identity.process_id == 0) return key;  // one that is not seen from here
      return StrCat("process ", identity.process_id, " of user ", identity.user_id);
  }
  return key;
}

}  // namespace

// --- setup --------------------------------------------------------------------------------------

absl::Status Admission::Check(const ServerLimits& limits, uint32_t engines) {
  std::vector<std::string_view> seen;
  for (const MethodLimit& one : limits.per_method) {
    if (!IsMethodName(one.method)) {
      return absl::InvalidArgumentError(
          StrCat("ServerLimits::per_method names \"", one.method,
                 "\"; a method's full name is \"package.Service/Method\""));
    }
    if (std::find(seen.begin(), seen.end(), one.method) != seen.end()) {
      return absl::InvalidArgumentError(
          StrCat("ServerLimits::per_method names ", one.method, " twice"));
    }
    seen.push_back(one.method);
  }
  if (limits.adaptive_least < 1 || limits.adaptive_least > limits.adaptive_most ||
      limits.adaptive_most > kHighestAdaptiveLimit) {
    return absl::InvalidArgumentError(StrCat(
        "ServerLimits::adaptive_least is ", limits.adaptive_least, ", adaptive_most ",
        limits.adaptive_most, "; 1 to ", kHighestAdaptiveLimit, " are allowed, the least first"));
  }
  if (limits.adaptive && limits.adaptive_most < engines) {
    return absl::InvalidArgumentError(
        StrCat("ServerLimits::adaptive_most is ", limits.adaptive_most, " beside ", engines,
               " engines, each of which has a part of it; set it to ", engines, " or more"));
  }
  if (limits.idle_timeout_us != 0 && (limits.idle_timeout_us < kShortestIdleTimeoutUs ||
                                      limits.idle_timeout_us > kLongestIdleTimeoutUs)) {
    return absl::InvalidArgumentError(
        StrCat("ServerLimits::idle_timeout_us is ", limits.idle_timeout_us, "; 0 or ",
               kShortestIdleTimeoutUs, " to ", kLongestIdleTimeoutUs, " are allowed"));
  }
  return absl::OkStatus();
}

std::unique_ptr<Admission> Admission::Make(const ServerLimits& limits, const Clock& clock,
                                           ServerTallies& stats, CommonLimits* common) {
  const auto limited = [](const MethodLimit& one) { return one.most > 0; };
  if (!limits.adaptive && limits.per_client == 0 &&
      std::none_of(limits.per_method.begin(), limits.per_method.end(), limited)) {
    return nullptr;
  }
  return std::make_unique<Admission>(limits, clock, stats, common);
}

Admission::Admission(const ServerLimits& limits, const Clock& clock, ServerTallies& stats,
                     CommonLimits* common)
    : limits_(limits), clock_(clock), stats_(stats), common_(common) {
  for (size_t i = 0; i < limits.per_method.size(); ++i) {
    counts_.push_back(common == nullptr ? RunningCount{.most = limits.per_method[i].most}
                                        : RunningCount{.common = common->OfMethod(i)});
  }
}

Admission::~Admission() {
  // Ours: the server's calls and connections have ended, and every call gives back what it took
  WEFT_CHECK(clients_.empty() && (!adaptive_ || adaptive_->running() == 0));
  for (const RunningCount& count : counts_) WEFT_CHECK(count.running == 0);  // Ours: the same
}

absl::Status Admission::Bind(const DispatchTable& methods) {
  // As before: services are added before the first call only.
  if (methods_ != nullptr && bound_ == methods.entries()) return absl::OkStatus();
  std::vector<RunningCount*> found(methods.entries(), nullptr);
  std::vector<bool> known(counts_.size(), false);
  std::string names;
  for (size_t number = 0; number < methods.entries(); ++number) {
    const std::string name = FullName(*methods.Find(static_cast<uint16_t>(number)));
    if (number < std::min(kMethodsNamed, methods.size())) {
      absl::StrAppend(&names, number > 0 ? ", " : "", name);
    }
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (limits_.per_method[i].method != name) continue;
      known[i] = true;
      if (counts_[i].limit() > 0) found[number] = &counts_[i];
    }
  }
  for (size_t i = 0; i < known.size(); ++i) {
    if (known[i]) continue;
    return absl::InvalidArgumentError(
        StrCat("ServerLimits::per_method names ", limits_.per_method[i].method,
               ", which no service of this server has; its ", methods.size(), " methods are ",
               names, methods.size() > kMethodsNamed ? ", ..." : ""));
  }
  methods_ = &methods;
  bound_ = methods.entries();
  methods_counts_ = std::move(found);
  if (limits_.adaptive) {
    adaptive_.emplace(limits_.adaptive_least, limits_.adaptive_most, bound_);
    stats_.adaptive_limit = adaptive_->limit();
  }
  return absl::OkStatus();
}

std::shared_ptr<RunningCount> Admission::CountOf(const PathInfo& client) {
  if (limits_.per_client == 0) return nullptr;
  RunningCount fresh = {.most = limits_.per_client};
  const std::string key = IdentityKey(client.identity);
  if (key.empty()) return std::make_shared<RunningCount>(fresh);
  std::weak_ptr<RunningCount>& known = clients_[key];
  if (std::shared_ptr<RunningCount> count = known.lock()) return count;
  std::shared_ptr<CommonPlaces> common;
  if (common_ != nullptr) {
    common = common_->OfClient(key);
    fresh = {.common = common.get()};
  }
  std::shared_ptr<RunningCount> count(new RunningCount(fresh),
                                      [this, key, common](RunningCount* gone) {
                                        if (common != nullptr) common->TakeBackAll(gone->most);
                                        clients_.erase(key);
                                        delete gone;
                                      });
  known = count;
  return count;
}

// --- calls --------------------------------------------------------------------------------------

absl::Status Admission::Admit(RunningCount* client, uint16_t method, What what,
                              AdmittedCall* call) {
  RunningCount* const of_method = methods_counts_[method];
  if (client != nullptr && !client->HasPlace()) return RefuseClient(*client);
  if (of_method != nullptr && !of_method->HasPlace()) {
    if (client != nullptr) client->GiveBack();
    return RefuseMethod(*of_method, method);
  }
  call->in_adaptive = adaptive_.has_value() && what == What::kCall;
  if (call->in_adaptive && !adaptive_->Admit(clock_.NowNs(), method, &call->ticket)) {
    if (client != nullptr) client->GiveBack();
    if (of_method != nullptr) of_method->GiveBack();
    return RefuseAdaptively();
  }
  call->client = client;
  call->method = of_method;
  if (client != nullptr) ++client->running;
  if (of_method != nullptr) ++of_method->running;
  return absl::OkStatus();
}

void Admission::Release(const AdmittedCall& call, AdaptiveLimit::End end) {
  for (RunningCount* const count : {call.client, call.method}) {
    if (count == nullptr) continue;
    --count->running;
    count->GiveBack();
  }
  if (!call.in_adaptive) return;
  adaptive_->OnEnd(clock_.NowNs(), call.ticket, end);
  stats_.adaptive_limit = adaptive_->limit();
}

absl::Status Admission::RefuseClient(const RunningCount& client) {
  ++stats_.refused_by_client_limit;
  if (!client.exact()) {
    return OverLimit(
        StrCat("this client has nearly as many calls running as ServerLimits::per_client allows, "
               "which is ",
               client.limit()));
  }
  return OverLimit(StrCat("this client has ", client.limit(),
                          " calls running, as many as ServerLimits::per_client allows"));
}

absl::Status Admission::RefuseMethod(const RunningCount& method, uint16_t number) {
  ++stats_.refused_by_method_limit;
  const std::string name = FullName(*methods_->Find(number));
  if (!method.exact()) {
    return OverLimit(StrCat("method ", name,
                            " has nearly as many calls running as ServerLimits::per_method "
                            "allows, which is ",
                            method.limit()));
  }
  return OverLimit(StrCat("method ", name, " has ", method.limit(),
                          " calls running, as many as ServerLimits::per_method allows"));
}

absl::Status Admission::RefuseAdaptively() {
  ++stats_.refused_by_adaptive_limit;
  return OverLimit(StrCat("the server is overloaded: ", adaptive_->running(),
                          " calls are running, and ServerLimits::adaptive allows ",
                          adaptive_->limit(), " now"));
}

}  // namespace weft
