#include "rpc/plugin/layout.h"
#include "rpc/plugin/names.h"
#include "rpc/plugin/writers.h"

namespace weft::plugin {
namespace {

using google::protobuf::FileDescriptor;
using google::protobuf::MethodDescriptor;
using google::protobuf::ServiceDescriptor;
using google::protobuf::io::Printer;

void WriteOuterClass(const ServiceDescriptor& service, Printer* printer) {
  WriteComment(service, printer);
  printer->Print(
      "class $service$ final {\n"
      " public:\n"
      "  class Stub;       // calls it\n"
      "  class Service;    // implements it\n"
      "  class CoService;  // implements it, by coroutines\n",
      "service", Text(service.name()));
  if (HasLayouts(service)) {
    printer->Print(
        "  class LayoutService;    // implements it, with structs of fixed layout\n"
        "  class CoLayoutService;  // the same by coroutines\n");
  }
  printer->Print(
      "\n"
      "  static const ::weft::ServiceDescriptor& descriptor();\n");
  if (HasLayouts(service)) {
    printer->Print("  static const ::weft::ServiceDescriptor& layout_descriptor();\n");
  }
  printer->Print(
      "\n"
      "  $service$() = delete;\n"
      "};\n\n",
      "service", Text(service.name()));
}

void WriteCalls(const Variables& variables, Printer* printer) {
  printer->Print(variables,
                 "::absl::Status $Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options = {}) const;\n"
                 "void $Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options,\n"
                 "    ::weft::Function<void(::absl::Status)> done) const;\n"
                 "::weft::CallAwaiter Co$Method$(\n"
                 "    const $Request$& request,\n"
                 "    $Reply$* reply,\n"
                 "    const ::weft::CallOptions& options = {}) const;\n");
}

void WriteOneWayCalls(const Variables& variables, Printer* printer) {
  printer->Print(variables,
                 "::absl::Status $Method$(\n"
                 "    const $Request$& request,\n"
                 "    const ::weft::CallOptions& options = {}) const;\n"
                 "void $Method$(\n"
                 "    const $Request$& request,\n"
                 "    const ::weft::CallOptions& options,\n"
                 "    ::weft::Function<void(::absl::Status)> done) const;\n"
                 "::weft::CallAwaiter Co$Method$(\n"
                 "    const $Request$& request,\n"
                 "    const ::weft::CallOptions& options = {}) const;\n");
}

// The forms of a method that is no stream.
void WriteForms(const MethodDescriptor& method, const Variables& variables, Printer* printer) {
  if (IsOneWay(method)) return WriteOneWayCalls(variables, printer);
  WriteCalls(variables, printer);
}

void WriteStreamCall(const MethodDescriptor& method, Printer* printer) {
  printer->Print(MethodVariables(method),
                 ByStreams(method,
                           "::weft::ClientWriter<\n"
                           "    $Request$> $Method$(\n"
                           "    $Reply$* reply,\n"
                           "    const ::weft::CallOptions& options = {}) const;\n",
                           "::weft::ClientReader<\n"
                           "    $Reply$> $Method$(\n"
                           "    const $Request$& request,\n"
                           "    const ::weft::CallOptions& options = {}) const;\n",
                           "::weft::ClientReaderWriter<\n"
                           "    $Request$,\n"
                           "    $Reply$> $Method$(\n"
                           "    const ::weft::CallOptions& options = {}) const;\n"));
}

void WriteStub(const ServiceDescriptor& service, Printer* printer) {
  printer->Print(
      "// For each method a blocking form, one that calls `done` on the engine's thread, and one "
      "for\n"
      "// coroutines (weft/coroutine.h). Channel says what holds for all (weft/channel.h). Cheap "
      "to\n"
      "// copy.\n"
      "class $service$::Stub final {\n"
      " public:\n"
      "  // The channel outlives the stub.\n"
      "  explicit Stub(::weft::Channel& channel);\n",
      "service", Text(service.name()));
  printer->Indent();
  for (int i = 0; i < service.method_count(); ++i) {
    printer->Print("\n");
    WriteComment(*service.method(i), printer);
    if (IsStreaming(*service.method(i))) {
      WriteStreamCall(*service.method(i), printer);
      continue;
    }
    if (IsOneWay(*service.method(i))) {
      printer->Print("// One-way: OK when the connection has the message (weft/channel.h).\n");
    }
    WriteForms(*service.method(i), MethodVariables(*service.method(i)), printer);
    if (!HasLayouts(*service.method(i))) continue;
    printer->Print("// With structs of fixed layout (weft/fixed_layout.h).\n");
    WriteForms(*service.method(i), LayoutVariables(*service.method(i)), printer);
  }
  printer->Outdent();
  printer->Print(
      "\n"
      " private:\n"
      "  ::weft::Channel* channel_;\n"
      "  uint32_t first_method_;\n"
      "};\n\n");
}

// The last parameters of a handler: of one-way messages it has no reply to fill.
void WriteBodyParameters(const MethodDescriptor& method, const Variables& variables,
                         Printer* printer) {
  if (IsOneWay(method)) {
    printer->Print(variables, "    const $Request$& request);\n");
  } else {
    printer->Print(variables,
                   "    const $Request$& request,\n"
                   "    $Reply$* reply);\n");
  }
}

void WriteStreamHandlers(const MethodDescriptor& method, Printer* printer) {
  printer->Print(MethodVariables(method), ByStreams(method,
                                                    "virtual ::absl::Status $Method$(\n"
                                                    "    ::weft::ServerContext& context,\n"
                                                    "    ::weft::ServerReader<\n"
                                                    "        $Request$>& reader,\n"
                                                    "    $Reply$* reply);\n"
                                                    "virtual void Start$Method$(\n"
                                                    "    ::weft::ServerReader<\n"
                                                    "        $Request$> reader,\n"
                                                    "    $Reply$* reply);\n",
                                                    "virtual ::absl::Status $Method$(\n"
                                                    "    ::weft::ServerContext& context,\n"
                                                    "    const $Request$& request,\n"
                                                    "    ::weft::ServerWriter<\n"
                                                    "        $Reply$>& writer);\n"
                                                    "virtual void Start$Method$(\n"
                                                    "    const $Request$& request,\n"
                                                    "    ::weft::ServerWriter<\n"
                                                    "        $Reply$> writer);\n",
                                                    "virtual ::absl::Status $Method$(\n"
                                                    "    ::weft::ServerContext& context,\n"
                                                    "    ::weft::ServerReaderWriter<\n"
                                                    "        $Reply$,\n"
                                                    "        $Request$>& stream);\n"
                                                    "virtual void Start$Method$(\n"
                                                    "    ::weft::ServerReaderWriter<\n"
                                                    "        $Reply$,\n"
                                                    "        $Request$> stream);\n"));
}

// `variables`: MethodVariables or LayoutVariables.
void WriteServiceClass(const ServiceDescriptor& service, const char* name,
                       Variables (*variables)(const MethodDescriptor&), Printer* printer) {
  printer->Print(
      "class $service$::$name$ : public ::weft::Service {\n"
      " public:\n"
      "  const ::weft::ServiceDescriptor& weft_descriptor() const final;\n",
      "service", Text(service.name()), "name", name);
  printer->Indent();
  for (int i = 0; i < service.method_count(); ++i) {
    printer->Print("\n");
    WriteComment(*service.method(i), printer);
    if (IsStreaming(*service.method(i))) {
      WriteStreamHandlers(*service.method(i), printer);
      continue;
    }
    const Variables of = variables(*service.method(i));
    printer->Print(of,
                   "virtual ::absl::Status $Method$(\n"
                   "    ::weft::ServerContext& context,\n");
    WriteBodyParameters(*service.method(i), of, printer);
    printer->Print(of,
                   "virtual void Start$Method$(\n"
                   "    ::weft::UnaryCall<\n"
                   "        $Request$,\n"
                   "        $Reply$> call);\n");
  }
  printer->Outdent();
  printer->Print("};\n\n");
}

void WriteStreamCoroutine(const MethodDescriptor& method, Printer* printer) {
  printer->Print(MethodVariables(method),
                 ByStreams(method,
                           "virtual ::weft::Task<::absl::Status> Co$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$>& reader,\n"
                           "    $Reply$* reply);\n"
                           "void Start$Method$(\n"
                           "    ::weft::ServerReader<\n"
                           "        $Request$> reader,\n"
                           "    $Reply$* reply) override;\n",
                           "virtual ::weft::Task<::absl::Status> Co$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    const $Request$& request,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$>& writer);\n"
                           "void Start$Method$(\n"
                           "    const $Request$& request,\n"
                           "    ::weft::ServerWriter<\n"
                           "        $Reply$> writer) override;\n",
                           "virtual ::weft::Task<::absl::Status> Co$Method$(\n"
                           "    ::weft::ServerContext& context,\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$>& stream);\n"
                           "void Start$Method$(\n"
                           "    ::weft::ServerReaderWriter<\n"
                           "        $Reply$,\n"
                           "        $Request$> stream) override;\n"));
}

// `base`: the service class whose forms it adds to.
void WriteCoroutineClass(const ServiceDescriptor& service, const char* base,
                         Variables (*variables)(const MethodDescriptor&), Printer* printer) {
  printer->Print("class $service$::Co$base$ : public $service$::$base$ {\n public:\n", "service",
                 Text(service.name()), "base", base);
  printer->Indent();
  for (int i = 0; i < service.method_count(); ++i) {
    if (i > 0) printer->Print("\n");
    if (IsStreaming(*service.method(i))) {
      WriteStreamCoroutine(*service.method(i), printer);
      continue;
    }
    const Variables of = variables(*service.method(i));
    printer->Print(of,
                   "virtual ::weft::Task<::absl::Status> Co$Method$(\n"
                   "    ::weft::ServerContext& context,\n");
    WriteBodyParameters(*service.method(i), of, printer);
    printer->Print(of,
                   "void Start$Method$(\n"
                   "    ::weft::UnaryCall<\n"
                   "        $Request$,\n"
                   "        $Reply$> call) override;\n");
  }
  printer->Outdent();
  printer->Print("};\n\n");
}

void WriteServices(const ServiceDescriptor& service, Printer* printer) {
  printer->Print(
      "// Override, for each method, the synchronous form, or the asynchronous one (Start...) to\n"
      "// finish the call later (weft/service.h). What is not overridden is UNIMPLEMENTED.\n");
  WriteServiceClass(service, "Service", &MethodVariables, printer);
  printer->Print(
      "// The same with one form more: coroutines (Co..., weft/coroutine.h). What does not "
      "override\n"
      "// that has the others.\n");
  WriteCoroutineClass(service, "Service", &MethodVariables, printer);
  if (!HasLayouts(service)) return;
  printer->Print(
      "// The same, with structs in place of messages of fixed layout: a server has one or the\n"
      "// other (weft/fixed_layout.h). Callers with messages are served as well.\n");
  WriteServiceClass(service, "LayoutService", &LayoutVariables, printer);
  WriteCoroutineClass(service, "LayoutService", &LayoutVariables, printer);
}

bool HasStreams(const FileDescriptor& file) {
  for (int i = 0; i < file.service_count(); ++i) {
    for (int k = 0; k < file.service(i)->method_count(); ++k) {
      if (IsStreaming(*file.service(i)->method(k))) return true;
    }
  }
  return false;
}

}  // namespace

void WriteHeader(const FileDescriptor& file, Printer* printer) {
  const std::string scope = Namespace(file);
  printer->Print(
      "// Generated by protoc-gen-weft from $file$. Do not edit.\n"
      "#pragma once\n"
      "\n"
      "#include \"$base$.pb.h\"\n"
      "#include \"weft/generated.h\"\n",
      "file", Text(file.name()), "base", BaseName(file));
  if (HasStreams(file)) printer->Print("#include \"weft/stream.h\"\n");
  WriteLayoutIncludes(file, printer);
  printer->Print("\n");
  if (!scope.empty()) printer->Print("namespace $scope$ {\n\n", "scope", scope);
  WriteLayouts(file, printer);
  for (int i = 0; i < file.service_count(); ++i) {
    WriteOuterClass(*file.service(i), printer);
    WriteStub(*file.service(i), printer);
    WriteServices(*file.service(i), printer);
  }
  if (!scope.empty()) printer->Print("}  // namespace $scope$\n", "scope", scope);
}

}  // namespace weft::plugin
