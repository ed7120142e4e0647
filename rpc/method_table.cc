#include "rpc/method_table.h"

#include <algorithm>

#include "core/strings.h"

namespace weft {

uint32_t MethodTable::Bind(const ServiceDescriptor& service) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Bound& bound : bound_) {
    if (bound.service == &service) return bound.first;
  }
  const auto count = static_cast<uint32_t>(service.methods.size());
  if (count > kMaxMethods - next_) return kMaxMethods;
  bound_.push_back({next_, &service});
  next_ += count;
  return next_ - count;
}

bool MethodTable::Learn(const rpc::ServerHello& hello) {
  Forget();
  served_.clear();
  server_name_ = hello.name();
  uint32_t first = 0;
  for (const rpc::ServiceTable& service : hello.services()) {
    Served served{static_cast<uint16_t>(first), {}};
    served.methods.assign(service.methods().begin(), service.methods().end());
    first += static_cast<uint32_t>(service.methods_size());
    if (first >= kUnknown) return false;
    served_.emplace(service.name(), std::move(served));
  }
  return true;
}

absl::StatusOr<uint16_t> MethodTable::Resolve(uint32_t method, const std::string& address) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto bound = std::find_if(bound_.begin(), bound_.end(), [&](const Bound& b) {
    return method >= b.first && method - b.first < b.service->methods.size();
  });
  if (bound == bound_.end()) {
    return absl::ResourceExhaustedError(
        StrCat("the services bound to this channel have more than ", kMaxMethods, " methods"));
  }
  const std::string server =
      server_name_.empty() ? address : StrCat("\"", server_name_, "\" at ", address);
  const std::string service(bound->service->full_name);
  const std::string name(bound->service->methods[method - bound->first].name);
  const auto served = served_.find(service);
  if (served == served_.end()) {
    return absl::UnimplementedError(
        StrCat("server ", server, " has no service ", service, " (called for method ", name, ")"));
  }
  const std::vector<std::string>& methods = served->second.methods;
  const auto at = std::find(methods.begin(), methods.end(), name);
  if (at == methods.end()) {
    return absl::UnimplementedError(
        StrCat("service ", service, " of server ", server, " has no method ", name));
  }
  numbers_[method] = static_cast<uint16_t>(served->second.first + (at - methods.begin()));
  return numbers_[method];
}

}  // namespace weft
