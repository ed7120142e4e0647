#include "rpc/plugin/rules.h"

#include <google/protobuf/descriptor.pb.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "rpc/plugin/errors.h"
#include "rpc/plugin/layout.h"
#include "rpc/plugin/layout_rules.h"
#include "rpc/plugin/names.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;

// Members of the generated Stub and Service classes.
constexpr std::string_view kMemberNames[] = {"Stub",          "Service",         "CoService",
                                             "LayoutService", "CoLayoutService", "channel_",
                                             "first_method_", "weft_descriptor"};

// The classes that protoc writes for nested types, which alone can meet a service's name.
void CollectNestedNames(const Descriptor& message, std::set<std::string>* names) {
  for (int i = 0; i < message.enum_type_count(); ++i) {
    names->insert(ClassName(*message.enum_type(i)));
  }
  for (int i = 0; i < message.nested_type_count(); ++i) {
    names->insert(ClassName(*message.nested_type(i)));
    CollectNestedNames(*message.nested_type(i), names);
  }
}

void CheckMethodName(const MethodDescriptor& method, Errors* errors) {
  const std::string name = Text(method.name());
  if (IsCppKeyword(name)) {
    errors->Add(method, "'" + name + "' is a C++ keyword; rename the method");
  }
  for (std::string_view member : kMemberNames) {
    if (name == member) {
      errors->Add(method, "'" + name + "' is a name in the generated classes; rename the method");
    }
  }
  for (std::string_view prefix : {"Start", "Co"}) {
    if (!std::string_view(name).starts_with(prefix)) continue;
    const std::string rest = name.substr(prefix.size());
    if (method.service()->FindMethodByName(rest) != nullptr) {
      errors->Add(method, "clashes with the generated asynchronous form of method " + rest +
                              "; rename one of them");
    }
  }
}

// A field of memory that a call lends, in the message or one inside it.
bool HasBulk(const Descriptor& message, std::set<const Descriptor*>* seen) {
  if (Text(message.full_name()) == "weft.Bulk") return true;
  if (!seen->insert(&message).second) return false;
  for (int i = 0; i < message.field_count(); ++i) {
    const Descriptor* const type = message.field(i)->message_type();
    if (type != nullptr && HasBulk(*type, seen)) return true;
  }
  return false;
}

void CheckOneWay(const MethodDescriptor& method, Errors* errors) {
  if (IsStreaming(method)) {
    errors->Add(method,
                "a one-way method takes one message at a time: remove 'stream', or the option "
                "(weft.one_way)");
  }
  const Descriptor& reply = *method.output_type();
  if (reply.field_count() > 0) {
    errors->Add(method,
                "nobody answers a one-way message: return google.protobuf.Empty, or "
                "another message without fields, instead of " +
                    Text(reply.full_name()));
  }
  std::set<const Descriptor*> seen;
  if (HasBulk(*method.input_type(), &seen)) {
    errors->Add(method, "a one-way message lends no memory: " +
                            Text(method.input_type()->full_name()) + " has a weft.Bulk");
  }
}

void CheckStreaming(const MethodDescriptor& method, Errors* errors) {
  for (const Descriptor* message : {method.input_type(), method.output_type()}) {
    if (HasFixedLayout(*message)) {
      errors->Add(method, "messages of streams travel as protobuf: " + Text(message->full_name()) +
                              " has a fixed layout; wrap it in a message that has none");
    }
    if (method.input_type() == method.output_type()) break;
  }
}

void CheckMethod(const MethodDescriptor& method, Errors* errors) {
  if (IsOneWay(method)) CheckOneWay(method, errors);
  if (IsStreaming(method)) CheckStreaming(method, errors);
  CheckMethodName(method, errors);
}

void CheckService(const ServiceDescriptor& service, const std::set<std::string>& nested_names,
                  Errors* errors) {
  const std::string name = Text(service.name());
  if (IsCppKeyword(name)) {
    errors->Add(service, "'" + name + "' is a C++ keyword; rename the service");
  }
  if (name == "Stub" || name == "Service" || name == "LayoutService") {
    errors->Add(service, "'" + name + "' is a name in the generated class; rename the service");
  }
  if (nested_names.count(name) != 0) {
    errors->Add(service, "protoc gives the same C++ name to a nested type; rename the service");
  }
  for (int i = 0; i < service.method_count(); ++i) CheckMethod(*service.method(i), errors);
}

}  // namespace

std::string FindErrors(const FileDescriptor& file) {
  Errors errors;
  std::set<std::string> nested_names;
  for (int i = 0; i < file.message_type_count(); ++i) {
    CollectNestedNames(*file.message_type(i), &nested_names);
  }
  for (int i = 0; i < file.service_count(); ++i) {
    const ServiceDescriptor& service = *file.service(i);
    if (file.options().cc_generic_services()) {
      errors.Add(service,
                 "cc_generic_services gives the same name to protoc's own class; remove "
                 "that option");
    }
    if (const std::string word = KeywordInPackage(file); !word.empty()) {
      errors.Add(service,
                 "'" + word + "' in the package name is a C++ keyword; rename the package");
    }
    CheckService(service, nested_names, &errors);
  }
  CheckLayouts(file, &errors);
  return errors.text();
}

}  // namespace weft::plugin
