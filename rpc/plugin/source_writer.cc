#include <google/protobuf/descriptor.pb.h>

#include "rpc/plugin/layout.h"
#include "rpc/plugin/layout_rules.h"
#include "rpc/plugin/names.h"
#include "rpc/plugin/writers.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::io::Printer;

// The end of a method's entry, behind its kind; nothing where the .proto file says nothing.
std::string IdempotencyOf(const MethodDescriptor& method) {
  switch (method.options().idempotency_level()) {
    case google::protobuf::MethodOptions::NO_SIDE_EFFECTS:
      return ", ::weft::Idempotency::kNoSideEffects";
    case google::protobuf::MethodOptions::IDEMPOTENT:
      return ", ::weft::Idempotency::kIdempotent";
    case google::protobuf::MethodOptions::IDEMPOTENCY_UNKNOWN:
      break;
  }
  return "";
}

// One method of a table, up to `layouts`.
void WriteTableEntry(const MethodDescriptor& method, const Variables& variables,
                     const char* service_class, Printer* printer) {
  Variables all = variables;
  all["Service"] = service_class;
  all["Kind"] = IsOneWay(method) ? "OneWay" : "Unary";
  printer->Print(all,
                 "      {\"$Method$\",\n"
                 "       \"$request_name$\",\n"
                 "       \"$reply_name$\",\n"
                 "       &::weft::internal::MakeMessages<\n"
                 "           $Request$,\n"
                 "           $Reply$>,\n"
                 "       &::weft::internal::Start$Kind$<\n"
                 "           $service$::$Service$,\n"
                 "           $Request$,\n"
                 "           $Reply$,\n"
                 "           &$service$::$Service$::Start$Method$>");
}

// Its end.
void WriteTableEntryEnd(const MethodDescriptor& method, bool has_layouts, Printer* printer) {
  const std::string idempotency = IdempotencyOf(method);
  if (!IsOneWay(method) && idempotency.empty()) return printer->Print("},\n");
  printer->Print(has_layouts ? ",\n" : ", nullptr,\n");
  printer->Print("       ::weft::MethodKind::$kind$$idempotency$},\n", "kind",
                 IsOneWay(method) ? "kOneWay" : "kUnary", "idempotency", idempotency);
}

// The same of a method of streams, to its end.
void WriteStreamTableEntry(const MethodDescriptor& method, const char* service_class,
                           Printer* printer) {
  Variables variables = MethodVariables(method);
  variables["Service"] = service_class;
  variables["Kind"] = ByStreams(method, "ClientStreaming", "ServerStreaming", "BidiStreaming");
  variables["idempotency"] = IdempotencyOf(method);
  printer->Print(variables,
                 "      {\"$Method$\",\n"
                 "       \"$request_name$\",\n"
                 "       \"$reply_name$\",\n"
                 "       &::weft::internal::MakeMessages<\n"
                 "           $Request$,\n"
                 "           $Reply$>,\n"
                 "       &::weft::internal::Start$Kind$<\n"
                 "           $service$::$Service$,\n"
                 "           $Request$,\n"
                 "           $Reply$,\n"
                 "           &$service$::$Service$::Start$Method$>,\n"
                 "       nullptr, ::weft::MethodKind::k$Kind$$idempotency$},\n");
}

void WriteMethodTable(const ServiceDescriptor& service, Printer* printer) {
  printer->Print("  static constexpr ::weft::MethodDescriptor kMethods[] = {\n");
  for (int i = 0; i < service.method_count(); ++i) {
    if (IsStreaming(*service.method(i))) {
      WriteStreamTableEntry(*service.method(i), "Service", printer);
      continue;
    }
    WriteTableEntry(*service.method(i), MethodVariables(*service.method(i)), "Service", printer);
    WriteTableEntryEnd(*service.method(i), /*has_layouts=*/false, printer);
  }
  printer->Print("  };\n");
}

void WriteDescriptor(const ServiceDescriptor& service, Printer* printer) {
  const bool has_methods = service.method_count() > 0;
  printer->Print("const ::weft::ServiceDescriptor& $service$::descriptor() {\n", "service",
                 Text(service.name()));
  if (has_methods) WriteMethodTable(service, printer);
  printer->Print(
      "  static constexpr ::weft::ServiceDescriptor kService = {\n"
      "      \"$full_name$\", $methods$};\n"
      "  return kService;\n"
      "}\n\n",
      "full_name", Text(service.full_name()), "methods", has_methods ? "kMethods" : "{}");
}

// A method with structs, travelling as they do or as protobuf.
void WriteForm(const MethodDescriptor& method, bool fixed_request, bool fixed_reply,
               Printer* printer) {
  Variables variables = LayoutVariables(method);
  variables["fixed_request"] = fixed_request ? "true" : "false";
  variables["fixed_reply"] = fixed_reply ? "true" : "false";
  WriteTableEntry(method, variables, "LayoutService", printer);
  printer->Print(variables,
                 ",\n"
                 "       &::weft::internal::kMethodLayouts<\n"
                 "           $Request$,\n"
                 "           $Reply$,\n"
                 "           $fixed_request$, $fixed_reply$>");
  WriteTableEntryEnd(method, /*has_layouts=*/true, printer);
}

// The methods as LayoutService has them, and behind them their forms: first, for stubs, each with
// all that is fixed; then, for stubs that mean another layout in one direction, those with the
// other alone.
void WriteLayoutDescriptor(const ServiceDescriptor& service, Printer* printer) {
  printer->Print(
      "const ::weft::ServiceDescriptor& $service$::layout_descriptor() {\n"
      "  static constexpr ::weft::MethodDescriptor kMethods[] = {\n",
      "service", Text(service.name()));
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    if (IsStreaming(method)) {
      WriteStreamTableEntry(method, "LayoutService", printer);
    } else if (HasLayouts(method)) {
      WriteForm(method, false, false, printer);
    } else {
      WriteTableEntry(method, LayoutVariables(method), "LayoutService", printer);
      WriteTableEntryEnd(method, /*has_layouts=*/false, printer);
    }
  }
  printer->Print(
      "  };\n"
      "  static constexpr ::weft::MethodDescriptor kForms[] = {\n");
  for (bool whole : {true, false}) {
    for (int i = 0; i < service.method_count(); ++i) {
      const MethodDescriptor& method = *service.method(i);
      const bool request = HasFixedLayout(*method.input_type());
      const bool reply = HasFixedLayout(*method.output_type());
      if (whole && (request || reply)) WriteForm(method, request, reply, printer);
      if (!whole && request && reply) {
        WriteForm(method, true, false, printer);
        WriteForm(method, false, true, printer);
      }
    }
  }
  printer->Print(
      "  };\n"
      "  static constexpr ::weft::ServiceDescriptor kService = {\n"
      "      \"$full_name$\", kMethods, kForms};\n"
      "  return kService;\n"
      "}\n\n",
      "full_name", Text(service.full_name()));
}

void WriteStubConstructor(const ServiceDescriptor& service, Printer* printer) {
  printer->Print(
      "$service$::Stub::Stub(::weft::Channel& channel)\n"
      "    : channel_(&channel), first_method_(channel.Bind($service$::$descriptor$())) {}\n"
      "\n",
      "service", Text(service.name()), "descriptor",
      HasLayouts(service) ? "layout_descriptor" : "descriptor");
}

void WriteDescriptorOf(const ServiceDescriptor& service, const char* service_class,
                       const char* descriptor, Printer* printer) {
  printer->Print(
      "const ::weft::ServiceDescriptor& $service$::$Service$::weft_descriptor() const {\n"
      "  return $service$::$descriptor$();\n"
      "}\n\n",
      "service", Text(service.name()), "Service", service_class, "descriptor", descriptor);
}

// `variables` and `bodies`: of messages, or of structs.
void WriteOneWayCalls(Variables variables, const char* bodies, Printer* printer) {
  variables["bodies"] = bodies;
  printer->Print(
      variables,
      "::absl::Status $service$::Stub::$Method$(\n"
      "    const $Request$& request,\n"
      "    const ::weft::CallOptions& options) const {\n"
      "  return channel_->SendOneWay(first_method_ + $index$, $bodies$, options);\n"
      "}\n\n"
      "void $service$::Stub::$Method$(\n"
      "    const $Request$& request,\n"
      "    const ::weft::CallOptions& options,\n"
      "    ::weft::Function<void(::absl::Status)> done) const {\n"
      "  channel_->SendOneWay(first_method_ + $index$, $bodies$, options,\n"
      "                       ::std::move(done));\n"
      "}\n\n"
      "::weft::CallAwaiter $service$::Stub::Co$Method$(\n"
      "    const $Request$& request,\n"
      "    const ::weft::CallOptions& options) const {\n"
      "  return ::weft::CallAwaiter(*channel_, first_method_ + $index$, $bodies$, options,\n"
      "                             /*one_way=*/true);\n"
      "}\n\n");
}

void WriteCalls(const MethodDescriptor& method, Printer* printer) {
  if (IsOneWay(method)) {
    return WriteOneWayCalls(MethodVariables(method),
                            "::weft::internal::MessageCallOf(request, nullptr)", printer);
  }
  printer->Print(MethodVariables(method),
                 "::absl::Status $service$::Stub::$Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options) const {\n"
                 "  return channel_->Call(first_method_ + $index$, request, reply, options);\n"
                 "}\n\n"
                 "void $service$::Stub::$Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options,\n"
                 "    ::weft::Function<void(::absl::Status)> done) const {\n"
                 "  channel_->Call(first_method_ + $index$, request, reply, options,\n"
                 "                 ::std::move(done));\n"
                 "}\n\n"
                 "::weft::CallAwaiter $service$::Stub::Co$Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options) const {\n"
                 "  return ::weft::CallAwaiter(*channel_, first_method_ + $index$,\n"
                 "                             ::weft::internal::MessageCallOf(request, reply),\n"
                 "                             options);\n"
                 "}\n\n");
}

void WriteStreamCall(const MethodDescriptor& method, Printer* printer) {
  printer->Print(
      MethodVariables(method),
      ByStreams(method,
                "::weft::ClientWriter<\n"
                "    $Request$> $service$::Stub::$Method$(\n"
                "    $Reply$* reply,\n"
                "    const ::weft::CallOptions& options) const {\n"
                "  return ::weft::ClientWriter<$Request$>(\n"
                "      ::weft::internal::StartStream(\n"
                "          *channel_, first_method_ + $index$, nullptr, reply, options));\n"
                "}\n\n",
                "::weft::ClientReader<\n"
                "    $Reply$> $service$::Stub::$Method$(\n"
                "    const $Request$& request,\n"
                "    const ::weft::CallOptions& options) const {\n"
                "  return ::weft::ClientReader<$Reply$>(\n"
                "      ::weft::internal::StartStream(\n"
                "          *channel_, first_method_ + $index$, &request, nullptr, options));\n"
                "}\n\n",
                "::weft::ClientReaderWriter<\n"
                "    $Request$,\n"
                "    $Reply$> $service$::Stub::$Method$(\n"
                "    const ::weft::CallOptions& options) const {\n"
                "  return ::weft::ClientReaderWriter<$Request$, $Reply$>(\n"
                "      ::weft::internal::StartStream(\n"
                "          *channel_, first_method_ + $index$, nullptr, nullptr, options));\n"
                "}\n\n"));
}

void WriteLayoutCalls(const MethodDescriptor& method, Printer* printer) {
  if (IsOneWay(method)) {
    const std::string bodies =
        "::weft::internal::OneWayCallOf<" + QualifiedName(*method.output_type()) + ">(request)";
    return WriteOneWayCalls(LayoutVariables(method), bodies.c_str(), printer);
  }
  printer->Print(
      LayoutVariables(method),
      "::absl::Status $service$::Stub::$Method$(\n"
      "    const $Request$& request,\n"
      "    $Reply$* reply,\n"
      "    const ::weft::CallOptions& options) const {\n"
      "  return channel_->Call(first_method_ + $index$,\n"
      "                        ::weft::internal::LayoutCallOf(request, reply), options);\n"
      "}\n\n"
      "void $service$::Stub::$Method$(\n"
      "    const $Request$& request,\n"
      "    $Reply$* reply,\n"
      "    const ::weft::CallOptions& options,\n"
      "    ::weft::Function<void(::absl::Status)> done) const {\n"
      "  channel_->Call(first_method_ + $index$,\n"
      "                 ::weft::internal::LayoutCallOf(request, reply), options,\n"
      "                 ::std::move(done));\n"
      "}\n\n"
      "::weft::CallAwaiter $service$::Stub::Co$Method$(\n"
      "    const $Request$& request,\n"
      "    $Reply$* reply,\n"
      "    const ::weft::CallOptions& options) const {\n"
      "  return ::weft::CallAwaiter(*channel_, first_method_ + $index$,\n"
      "                             ::weft::internal::LayoutCallOf(request, reply), options);\n"
      "}\n\n");
}

// $reply_parameter$ and $reply$: handlers of one-way messages have none.
void SetReplyParameter(const MethodDescriptor& method, Variables* variables) {
  const bool has = !IsOneWay(method);
  (*variables)["reply_parameter"] = has ? ",\n    " + (*variables)["Reply"] + "*" : "";
  (*variables)["reply"] = has ? ", call.reply()" : "";
}

void WriteHandlers(const MethodDescriptor& method, Variables variables, const char* service_class,
                   Printer* printer) {
  variables["Service"] = service_class;
  SetReplyParameter(method, &variables);
  printer->Print(variables,
                 "::absl::Status $service$::$Service$::$Method$(\n"
                 "    ::weft::ServerContext& context,\n"
                 "    const $Request$&$reply_parameter$) {\n"
                 "  return ::weft::internal::NotImplemented(context);\n"
                 "}\n\n"
                 "void $service$::$Service$::Start$Method$(\n"
                 "    ::weft::UnaryCall<\n"
                 "        $Request$,\n"
                 "        $Reply$> call) {\n"
                 "  call.Finish($Method$(call.context(), call.request()$reply$));\n"
                 "}\n\n");
}

void WriteStreamHandlers(const MethodDescriptor& method, const char* service_class,
                         Printer* printer) {
  Variables variables = MethodVariables(method);
  variables["Service"] = service_class;
  printer->Print(variables,
                 ByStreams(method,
                           "::absl::Status $service$::$Service$::$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$>&,\n"
                           "    $Reply$*) {\n"
                           "  return ::weft::internal::NotImplemented(context);\n"
                           "}\n\n"
                           "void $service$::$Service$::Start$Method$(\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$> reader,\n"
                           "    $Reply$* reply) {\n"
                           "  reader.Finish($Method$(reader.context(), reader, reply));\n"
                           "}\n\n",
                           "::absl::Status $service$::$Service$::$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    const $Request$&,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$>&) {\n"
                           "  return ::weft::internal::NotImplemented(context);\n"
                           "}\n\n"
                           "void $service$::$Service$::Start$Method$(\n"
                           "    const $Request$& request,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$> writer) {\n"
                           "  writer.Finish($Method$(writer.context(), request, writer));\n"
                           "}\n\n",
                           "::absl::Status $service$::$Service$::$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$>&) {\n"
                           "  return ::weft::internal::NotImplemented(context);\n"
                           "}\n\n"
                           "void $service$::$Service$::Start$Method$(\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$> stream) {\n"
                           "  stream.Finish($Method$(stream.context(), stream));\n"
                           "}\n\n"));
}

// A coroutine's class adds these to those of its base, which have the call if there is none.
void WriteCoroutine(const MethodDescriptor& method, Variables variables, const char* base,
                    Printer* printer) {
  variables["Base"] = base;
  SetReplyParameter(method, &variables);
  printer->Print(variables,
                 "::weft::Task<::absl::Status> $service$::Co$Base$::Co$Method$(\n"
                 "    ::weft::ServerContext&,\n"
                 "    const $Request$&$reply_parameter$) {\n"
                 "  return {};\n"
                 "}\n\n"
                 "void $service$::Co$Base$::Start$Method$(\n"
                 "    ::weft::UnaryCall<\n"
                 "        $Request$,\n"
                 "        $Reply$> call) {\n"
                 "  ::weft::Task<::absl::Status> task =\n"
                 "      Co$Method$(call.context(), call.request()$reply$);\n"
                 "  if (!task) return $Base$::Start$Method$(::std::move(call));\n"
                 "  ::weft::internal::FinishWith(call.Release(), ::std::move(task));\n"
                 "}\n\n");
}

void WriteStreamCoroutine(const MethodDescriptor& method, const char* base, Printer* printer) {
  Variables variables = MethodVariables(method);
  variables["Base"] = base;
  printer->Print(variables,
                 ByStreams(method,
                           "::weft::Task<::absl::Status> $service$::Co$Base$::Co$Method$(\n"
                           "    ::weft::ServerContext&,\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$>&,\n"
                           "    $Reply$*) {\n"
                           "  return {};\n"
                           "}\n\n"
                           "void $service$::Co$Base$::Start$Method$(\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$> reader,\n"
                           "    $Reply$* reply) {\n"
                           "  ::weft::internal::ServeStream(\n"
                           "      ::std::move(reader),\n"
                           "      [this, reply](auto& of) {\n"
                           "        return Co$Method$(of.context(), of, reply);\n"
                           "      },\n"
                           "      [this, reply](auto of) {\n"
                           "        $Base$::Start$Method$(::std::move(of), reply);\n"
                           "      });\n"
                           "}\n\n",
                           "::weft::Task<::absl::Status> $service$::Co$Base$::Co$Method$(\n"
                           "    ::weft::ServerContext&,\n"
                           "    const $Request$&,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$>&) {\n"
                           "  return {};\n"
                           "}\n\n"
                           "void $service$::Co$Base$::Start$Method$(\n"
                           "    const $Request$& request,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$> writer) {\n"
                           "  ::weft::internal::ServeStream(\n"
                           "      ::std::move(writer),\n"
                           "      [this, &request](auto& of) {\n"
                           "        return Co$Method$(of.context(), request, of);\n"
                           "      },\n"
                           "      [this, &request](auto of) {\n"
                           "        $Base$::Start$Method$(request, ::std::move(of));\n"
                           "      });\n"
                           "}\n\n",
                           "::weft::Task<::absl::Status> $service$::Co$Base$::Co$Method$(\n"
                           "    ::weft::ServerContext&,\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$>&) {\n"
                           "  return {};\n"
                           "}\n\n"
                           "void $service$::Co$Base$::Start$Method$(\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$> stream) {\n"
                           "  ::weft::internal::ServeStream(\n"
                           "      ::std::move(stream),\n"
                           "      [this](auto& of) { return Co$Method$(of.context(), of); },\n"
                           "      [this](auto of) { $Base$::Start$Method$(::std::move(of)); });\n"
                           "}\n\n"));
}

void WriteCoroutines(const ServiceDescriptor& service, const char* base,
                     Variables (*variables)(const MethodDescriptor&), Printer* printer) {
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    if (IsStreaming(method)) {
      WriteStreamCoroutine(method, base, printer);
    } else {
      WriteCoroutine(method, variables(method), base, printer);
    }
  }
}

void WriteService(const ServiceDescriptor& service, Printer* printer) {
  WriteDescriptor(service, printer);
  WriteStubConstructor(service, printer);
  WriteDescriptorOf(service, "Service", "descriptor", printer);
  for (int i = 0; i < service.method_count(); ++i) {
    if (IsStreaming(*service.method(i))) {
      WriteStreamCall(*service.method(i), printer);
      WriteStreamHandlers(*service.method(i), "Service", printer);
      continue;
    }
    WriteCalls(*service.method(i), printer);
    WriteHandlers(*service.method(i), MethodVariables(*service.method(i)), "Service", printer);
  }
  WriteCoroutines(service, "Service", &MethodVariables, printer);
}

void WriteLayoutService(const ServiceDescriptor& service, Printer* printer) {
  WriteLayoutDescriptor(service, printer);
  WriteDescriptorOf(service, "LayoutService", "layout_descriptor", printer);
  for (int i = 0; i < service.method_count(); ++i) {
    const MethodDescriptor& method = *service.method(i);
    if (IsStreaming(method)) {
      WriteStreamHandlers(method, "LayoutService", printer);
      continue;
    }
    if (HasLayouts(method)) WriteLayoutCalls(method, printer);
    WriteHandlers(method, LayoutVariables(method), "LayoutService", printer);
  }
  WriteCoroutines(service, "LayoutService", &LayoutVariables, printer);
}

// The stub's number of the form with all that is fixed: behind all methods, in their order.
int FormIndex(const MethodDescriptor& method) {
  int index = method.service()->method_count();
  for (int i = 0; i < method.index(); ++i) index += HasLayouts(*method.service()->method(i));
  return index;
}

bool HasCheckedLayouts(const FileDescriptor& file) {
  for (const Descriptor* message : LayoutsInOrder(file)) {
    if (LayOut(*message).checked) return true;
  }
  return false;
}

}  // namespace

Variables MethodVariables(const MethodDescriptor& method) {
  return {
      {"service", Text(method.service()->name())},
      {"Method", Text(method.name())},
      {"index", std::to_string(method.index())},
      {"Request", QualifiedName(*method.input_type())},
      {"Reply", QualifiedName(*method.output_type())},
      {"request_name", Text(method.input_type()->full_name())},
      {"reply_name", Text(method.output_type()->full_name())},
  };
}

Variables LayoutVariables(const MethodDescriptor& method) {
  const auto type = [](const Descriptor& message) {
    return HasFixedLayout(message) ? QualifiedLayoutName(message) : QualifiedName(message);
  };
  Variables variables = MethodVariables(method);
  if (HasLayouts(method)) variables["index"] = std::to_string(FormIndex(method));
  variables["Request"] = type(*method.input_type());
  variables["Reply"] = type(*method.output_type());
  return variables;
}

void WriteSource(const FileDescriptor& file, Printer* printer) {
  const std::string scope = Namespace(file);
  printer->Print(
      "// Generated by protoc-gen-weft from $file$. Do not edit.\n"
      "#include \"$base$.weft.h\"\n"
      "\n",
      "file", Text(file.name()), "base", BaseName(file));
  if (file.service_count() > 0) printer->Print("#include \"weft/coroutine.h\"\n");
  if (HasCheckedLayouts(file)) printer->Print("#include \"weft/internal/record.h\"\n");
  if (file.service_count() > 0 || HasCheckedLayouts(file)) printer->Print("\n");
  if (!scope.empty()) printer->Print("namespace $scope$ {\n\n", "scope", scope);
  WriteLayoutFunctions(file, printer);
  for (int i = 0; i < file.service_count(); ++i) {
    WriteService(*file.service(i), printer);
    if (HasLayouts(*file.service(i))) WriteLayoutService(*file.service(i), printer);
  }
  if (!scope.empty()) printer->Print("}  // namespace $scope$\n", "scope", scope);
}

}  // namespace weft::plugin
