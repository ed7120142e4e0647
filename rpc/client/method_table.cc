#include "rpc/client/method_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "core/log.h"
#include "core/strings.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/wire/completion_id.h"

namespace weft {
namespace {

size_t CountOf(const ServiceDescriptor& service) {
  return service.methods.size() + service.forms.size();
}

// A method, or behind all methods a form of one.
const MethodDescriptor& DescriptorOf(const ServiceDescriptor& service, size_t index) {
  return index < service.methods.size() ? service.methods[index]
                                        : service.forms[index - service.methods.size()];
}

}  // namespace

uint32_t BoundServices::Bind(const ServiceDescriptor& service) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Bound& bound : bound_) {
    if (bound.service == &service) return bound.first;
  }
  const auto count = static_cast<uint32_t>(CountOf(service));
  if (count > kMaxMethods - next_) return kMaxMethods;
  bound_.push_back({next_, &service, newest_.load(std::memory_order_relaxed)});
  newest_.store(&bound_.back(), std::memory_order_release);
  next_ += count;
  return next_ - count;
}

BoundServices::Found BoundServices::Find(uint32_t method) const {
  const Bound* bound = newest_.load(std::memory_order_acquire);
  while (bound != nullptr && method < bound->first) bound = bound->before;
  if (bound == nullptr || method - bound->first >= CountOf(*bound->service)) return {};
  return {bound->service, &DescriptorOf(*bound->service, method - bound->first)};
}

MethodTable::Name MethodTable::NameOf(uint32_t method) {
  const BoundServices::Found found = bound_->Find(method);
  if (found.service == nullptr) return {};
  return {found.service->full_name, found.method->name};
}

bool MethodTable::IsIdempotent(uint32_t method) {
  const BoundServices::Found found = bound_->Find(method);
  return found.service != nullptr && found.method->idempotency != Idempotency::kUnknown;
}

bool MethodTable::Learn(const rpc::ServerHello& hello) {
  Forget();
  served_.clear();
  forms_.clear();
  server_name_ = hello.name();
  uint32_t first = 0;
  for (const rpc::ServiceTable& service : hello.services()) {
    Served served{static_cast<uint16_t>(first), {}, {}};
    served.methods.assign(service.methods().begin(), service.methods().end());
    served.one_way.assign(service.one_way().begin(), service.one_way().end());
    first += static_cast<uint32_t>(service.methods_size());
    if (first >= kUnknown) return false;
    served_.emplace(service.name(), std::move(served));
  }
  first_form_ = static_cast<uint16_t>(first);
  if (static_cast<uint32_t>(hello.forms_size()) >= kUnknown - first) return false;
  for (const rpc::MethodForm& form : hello.forms()) {
    forms_.push_back({form.method(), form.request_layout(), form.reply_layout()});
  }
  if (hello.session_lease_us() != 0) {
    served_[std::string(kSessionServiceName)] = {kSessionMethod, {"Renew"}, {}};
  }
  return true;
}

std::string MethodTable::ServerText(const std::string& address) const {
  return server_name_.empty() ? address : StrCat("\"", server_name_, "\" at ", address);
}

absl::StatusOr<MethodTable::Agreed> MethodTable::Resolve(uint32_t method,
                                                         const std::string& address) {
  if (const auto known = converted_.find(method); known != converted_.end()) return known->second;
  const BoundServices::Found bound = bound_->Find(method);
  if (bound.service == nullptr) {
    return absl::ResourceExhaustedError(
        StrCat("the services bound to this channel have more than ", kMaxMethods, " methods"));
  }
  const MethodDescriptor& wanted = *bound.method;
  const std::string service(bound.service->full_name);
  const std::string name(wanted.name);
  const auto served = served_.find(service);
  if (served == served_.end()) {
    return absl::UnimplementedError(StrCat("server ", ServerText(address), " has no service ",
                                           service, " (called for method ", name, ")"));
  }
  const std::vector<std::string>& methods = served->second.methods;
  const auto at = std::find(methods.begin(), methods.end(), name);
  if (at == methods.end()) {
    return absl::UnimplementedError(
        StrCat("service ", service, " of server ", ServerText(address), " has no method ", name));
  }
  const std::vector<uint32_t>& one_way = served->second.one_way;
  const bool is_one_way =
      std::find(one_way.begin(), one_way.end(), at - methods.begin()) != one_way.end();
  if (is_one_way != (wanted.kind == MethodKind::kOneWay)) {
    return absl::UnimplementedError(
        StrCat("method ", service, ".", name, " of server ", ServerText(address),
               is_one_way ? " takes one-way messages, and this client wants a reply"
                          : " takes no one-way messages, which this client wants to send"));
  }
  Agreed agreed;
  agreed.number = static_cast<uint16_t>(served->second.first + (at - methods.begin()));
  const uint16_t number = agreed.number;
  if (wanted.layouts != nullptr) agreed = BestForm(*wanted.layouts, number);
  if (agreed.as_wanted) {
    SetNumber(method, agreed.number);
  } else {
    LogConversions(*wanted.layouts, agreed, StrCat(service, ".", name), number, address);
    converted_.emplace(method, agreed);
  }
  return agreed;
}

void MethodTable::SetNumber(uint32_t method, uint16_t number) {
  if (method < kFirstMethods) {
    first_numbers_[method] = number;
    return;
  }
  const size_t at = method - kFirstMethods;
  if (at >= further_numbers_.size()) further_numbers_.resize(at + 1, kUnknown);
  further_numbers_[at] = number;
}

// The server's form of its method `method` that has most of what is wanted: the method itself if
// need be.
MethodTable::Agreed MethodTable::BestForm(const MethodLayouts& wanted, uint16_t method) const {
  const auto fits = [](const LayoutSide& side, uint64_t hash) {
    return hash == 0 || (side.fixed() && side.type->hash == hash);
  };
  Agreed best{method, !wanted.request.fixed() && !wanted.reply.fixed(), false, false};
  for (size_t i = 0; i < forms_.size(); ++i) {
    const ServedForm& form = forms_[i];
    if (form.method != method || !fits(wanted.request, form.request_layout) ||
        !fits(wanted.reply, form.reply_layout)) {
      continue;
    }
    const bool request_fixed = form.request_layout != 0;
    const bool reply_fixed = form.reply_layout != 0;
    if (request_fixed + reply_fixed <= best.request_fixed + best.reply_fixed) continue;
    best = {static_cast<uint16_t>(first_form_ + i),
            request_fixed == wanted.request.fixed() && reply_fixed == wanted.reply.fixed(),
            request_fixed, reply_fixed};
  }
  return best;
}

void MethodTable::LogConversions(const MethodLayouts& wanted, const Agreed& agreed,
                                 const std::string& method, uint16_t number,
                                 const std::string& address) const {
  const auto log = [&](std::string_view which, const LayoutSide& side, bool fixed,
                       uint64_t ServedForm::*hash) {
    if (!side.fixed() || fixed) return;
    uint64_t theirs = 0;
    for (const ServedForm& form : forms_) {
      if (form.method == number && form.*hash != 0) theirs = form.*hash;
    }
    if (theirs == 0) {
      WEFT_LOG(kInfo, "the ", which, " of ", method, " travels as protobuf: server ",
               ServerText(address), " has no fixed layout of it");
    } else {
      WEFT_LOG(kInfo, "the ", which, " of ", method, " travels as protobuf: the layout of ",
               side.type->name, " is ", absl::Hex(side.type->hash, absl::kZeroPad16), " here and ",
               absl::Hex(theirs, absl::kZeroPad16), " at server ", ServerText(address));
    }
  };
  log("request", wanted.request, agreed.request_fixed, &ServedForm::request_layout);
  log("reply", wanted.reply, agreed.reply_fixed, &ServedForm::reply_layout);
}

}  // namespace weft
