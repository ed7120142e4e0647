#include "rpc/server/dispatch.h"

#include <google/protobuf/message_lite.h>

#include <string>

#include "core/strings.h"
#include "rpc/layout/method_layouts.h"
#include "rpc/wire/completion_id.h"
#include "rpc/wire/status_text.h"

namespace weft {

absl::Status WhyUndecoded(const MethodDescriptor& method, ByteSpan body, const CallBody& request) {
  if (method.layouts != nullptr && method.layouts->request.type != nullptr) {
    return NotRunError(absl::StatusCode::kInvalidArgument,
                       StrCat("the request for method ", method.name, " cannot be decoded: ",
                              WhyNotDecoded(method.layouts->request, body, request)));
  }
  google::protobuf::MessageLite& message = *request.message;
  if (!message.ParsePartialFromArray(body.data(), static_cast<int>(body.size()))) {
    return NotRunError(absl::StatusCode::kInvalidArgument,
                       StrCat("the request of ", body.size(), " bytes for method ", method.name,
                              " cannot be decoded as ", method.request_type));
  }
  return NotRunError(absl::StatusCode::kInvalidArgument,
                     StrCat("the request for method ", method.name, " lacks required fields of ",
                            method.request_type, ": ", message.InitializationErrorString()));
}

bool KeepsReplyInLayout(const MethodDescriptor& method) {
  return method.layouts != nullptr && method.layouts->reply.type != nullptr;
}

size_t EncodedReplyBytes(const MethodDescriptor& method, const CallBody& reply,
                         const absl::Cord* attachment) {
  size_t bytes = attachment != nullptr ? attachment->size() : 0;
  if (!KeepsReplyInLayout(method)) return bytes + reply.message->ByteSizeLong();
  const LayoutSide& side = method.layouts->reply;
  bytes += side.fixed() ? side.fixed_bytes : side.type->to_protobuf(reply.record).size();
  return bytes;
}

absl::Status CheckReplyFor(const ReplyBounds& client, const MethodDescriptor& method,
                           const CallBody& reply, const absl::Cord* attachment) {
  if (attachment != nullptr && !client.attachments) {
    return absl::UnimplementedError(
        StrCat("the reply of method ", method.name,
               " has an attachment; this client takes none (the request has run)"));
  }
  const size_t bytes = EncodedReplyBytes(method, reply, attachment);
  if (bytes > client.bytes) {
    return absl::ResourceExhaustedError(StrCat("the reply of method ", method.name, " has ", bytes,
                                               " bytes; this client takes at most ", client.bytes,
                                               " (the request has run)"));
  }
  if (!KeepsReplyInLayout(method) && !reply.message->IsInitialized()) {
    return absl::InternalError(
        StrCat("the reply of method ", method.name,
               " lacks required fields: ", reply.message->InitializationErrorString()));
  }
  return absl::OkStatus();
}

absl::Status DispatchTable::Add(Service* service, Executor* executor) {
  // Those below the server's own; the last of all stands for "unknown" at clients.
  constexpr size_t kMaxMethods = kSessionMethod;
  const ServiceDescriptor& descriptor = service->weft_descriptor();
  for (const ServiceDescriptor* known : services_) {
    if (known->full_name == descriptor.full_name) {
      return absl::AlreadyExistsError(
          StrCat("service ", descriptor.full_name, " has been added before"));
    }
  }
  if (descriptor.methods.size() + descriptor.forms.size() > kMaxMethods - entries_.size()) {
    return absl::ResourceExhaustedError(StrCat("service ", descriptor.full_name,
                                               ": a server has at most ", kMaxMethods, " methods"));
  }
  services_.push_back(&descriptor);
  for (const MethodDescriptor& method : descriptor.methods) {
    entries_.insert(entries_.begin() + static_cast<ptrdiff_t>(methods_++),
                    {&method, service, executor});
  }
  for (const MethodDescriptor& form : descriptor.forms) {
    entries_.push_back({&form, service, executor});
  }
  first_ = entries_.data();
  count_ = entries_.size();
  return absl::OkStatus();
}

// Of the method itself.
size_t DispatchTable::NumberOf(const MethodEntry& form) const {
  size_t number = 0;
  while (entries_[number].service != form.service ||
         entries_[number].method->name != form.method->name) {
    ++number;
  }
  return number;
}

void DispatchTable::Describe(rpc::ServerHello* hello) const {
  for (const ServiceDescriptor* descriptor : services_) {
    rpc::ServiceTable* service = hello->add_services();
    service->set_name(std::string(descriptor->full_name));
    for (const MethodDescriptor& method : descriptor->methods) {
      if (method.kind == MethodKind::kOneWay) {
        service->add_one_way(static_cast<uint32_t>(service->methods_size()));
      }
      service->add_methods(std::string(method.name));
    }
  }
  const auto hash = [](const LayoutSide& side) { return side.fixed() ? side.type->hash : 0; };
  for (size_t i = methods_; i < entries_.size(); ++i) {
    rpc::MethodForm* form = hello->add_forms();
    form->set_method(static_cast<uint32_t>(NumberOf(entries_[i])));
    form->set_request_layout(hash(entries_[i].method->layouts->request));
    form->set_reply_layout(hash(entries_[i].method->layouts->reply));
  }
}

}  // namespace weft
