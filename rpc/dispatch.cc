#include "rpc/dispatch.h"

#include <string>

#include "core/strings.h"

namespace weft {

absl::Status DispatchTable::Add(Service* service, Executor* executor) {
  constexpr size_t kMaxMethods = 0xFFFE;  // 0xFFFF stands for "unknown" at clients
  const ServiceDescriptor& descriptor = service->weft_descriptor();
  for (const ServiceDescriptor* known : services_) {
    if (known->full_name == descriptor.full_name) {
      return absl::AlreadyExistsError(
          StrCat("service ", descriptor.full_name, " has been added before"));
    }
  }
  if (descriptor.methods.size() > kMaxMethods - entries_.size()) {
    return absl::ResourceExhaustedError(StrCat("service ", descriptor.full_name,
                                               ": a server has at most ", kMaxMethods, " methods"));
  }
  services_.push_back(&descriptor);
  for (const MethodDescriptor& method : descriptor.methods) {
    entries_.push_back({&method, service, executor});
  }
  return absl::OkStatus();
}

void DispatchTable::Describe(rpc::ServerHello* hello) const {
  for (const ServiceDescriptor* descriptor : services_) {
    rpc::ServiceTable* service = hello->add_services();
    service->set_name(std::string(descriptor->full_name));
    for (const MethodDescriptor& method : descriptor->methods) {
      service->add_methods(std::string(method.name));
    }
  }
}

}  // namespace weft
