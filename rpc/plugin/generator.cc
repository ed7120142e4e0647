#include "rpc/plugin/generator.h"

#include <google/protobuf/io/printer.h>
#include <google/protobuf/io/zero_copy_stream.h>

#include <memory>

#include "rpc/plugin/names.h"
#include "rpc/plugin/rules.h"
#include "rpc/plugin/writers.h"

namespace weft::plugin {

using google::protobuf::FileDescriptor;
using google::protobuf::compiler::GeneratorContext;
using google::protobuf::io::Printer;
using google::protobuf::io::ZeroCopyOutputStream;

uint64_t Generator::GetSupportedFeatures() const {
  uint64_t features = FEATURE_PROTO3_OPTIONAL;
#if GOOGLE_PROTOBUF_VERSION >= 5027000
  features |= FEATURE_SUPPORTS_EDITIONS;
#endif
  return features;
}

bool Generator::Generate(const FileDescriptor* file, const std::string& parameter,
                         GeneratorContext* output, std::string* error) const {
  if (!parameter.empty()) {
    *error = "unknown option '" + parameter + "': protoc-gen-weft has none";
    return false;
  }
  *error = FindErrors(*file);
  if (!error->empty()) return false;

  const auto write = [&](const char* suffix, void (*writer)(const FileDescriptor&, Printer*)) {
    std::unique_ptr<ZeroCopyOutputStream> stream(output->Open(BaseName(*file) + suffix));
    Printer printer(stream.get(), '$');
    writer(*file, &printer);
  };
  write(".weft.h", &WriteHeader);
  write(".weft.cc", &WriteSource);
  return true;
}

}  // namespace weft::plugin
