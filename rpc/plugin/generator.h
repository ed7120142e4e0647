// The generator as protoc's plugin interface sees it: for each .proto file a NAME.weft.h and a
// NAME.weft.cc, also when it has no services, so that build rules know their outputs beforehand.
//
// Threads: const functions only. Errors: as text, with the line; nothing is written then.
#pragma once

#include <google/protobuf/compiler/code_generator.h>

#include <string>

namespace weft::plugin {

class Generator final : public google::protobuf::compiler::CodeGenerator {
 public:
  uint64_t GetSupportedFeatures() const override;

  // `parameter` must be empty: there are no options.
  bool Generate(const google::protobuf::FileDescriptor* file, const std::string& parameter,
                google::protobuf::compiler::GeneratorContext* output,
                std::string* error) const override;

#if GOOGLE_PROTOBUF_VERSION >= 5027000
  google::protobuf::Edition GetMinimumEdition() const override {
    return google::protobuf::Edition::EDITION_PROTO2;
  }
  google::protobuf::Edition GetMaximumEdition() const override {
    return google::protobuf::Edition::EDITION_2023;
  }
#endif
};

}  // namespace weft::plugin
