// protoc-gen-weft on files that a fuzzer makes up.
//
// The bytes become a FileDescriptorProto: messages with fields of all kinds and Weft's options,
// enums, services. (Or they are one, encoded, as a plugin gets it from protoc.) What protobuf
// itself takes as a file is what protoc would hand over; the generator must write both files or say
// why not, and the same a second time.

#include <google/protobuf/compiler/code_generator.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "core/check.h"
#include "core/testing/fuzz_input.h"
#include "rpc/plugin/generator.h"
#include "weft/memory.pb.h"
#include "weft/options.pb.h"

namespace weft::plugin {
namespace {

namespace pb = google::protobuf;

class MemoryOutput final : public pb::compiler::GeneratorContext {
 public:
  pb::io::ZeroCopyOutputStream* Open(const std::string& name) override {
    return new pb::io::StringOutputStream(&files[name]);
  }
  std::map<std::string, std::string> files;
};

// Says nothing: most files are wrong.
class Silent final : public pb::DescriptorPool::ErrorCollector {
 public:
  void AddError(const std::string&, const std::string&, const pb::Message*, ErrorLocation,
                const std::string&) override {}
};

// Names that mean something to C++, to the generator, or to nobody.
std::string Name(FuzzInput& input) {
  static constexpr const char* kNames[] = {
      "A",     "B",     "C",    "value", "class",   "Stub",      "Service", "operator",
      "int",   "x_y",   "X",    "weft",  "request", "namespace", "reply",   "channel",
      "Async", "Start", "call", "std",   "data",    "sequence",  "_a",      "A_B",
      "a1",    "kA",    "NULL", "main",  "Layout",  "record",    "assert",  "bytes"};
  const uint8_t how = input.U8();
  std::string name = kNames[how % 32];
  if (how >= 192) name += std::to_string(how % 7);
  return name;
}

std::string TypeName(FuzzInput& input) {
  switch (input.Below(8)) {
    case 0:
      return ".weft.RemoteRegion";
    case 1:
      return ".fuzz." + Name(input) + "." + Name(input);
    default:
      return ".fuzz." + Name(input);
  }
}

void AddField(FuzzInput& input, pb::DescriptorProto* message) {
  pb::FieldDescriptorProto* const field = message->add_field();
  field->set_name(Name(input));
  field->set_number(input.Below(8) < 7 ? message->field_size() : static_cast<int>(input.Number()));
  field->set_label(static_cast<pb::FieldDescriptorProto::Label>(input.Below(4) == 0 ? 3 : 1));
  const auto type = static_cast<pb::FieldDescriptorProto::Type>(1 + input.Below(18));
  field->set_type(type);
  if (type == pb::FieldDescriptorProto::TYPE_MESSAGE ||
      type == pb::FieldDescriptorProto::TYPE_ENUM || type == pb::FieldDescriptorProto::TYPE_GROUP) {
    field->set_type_name(TypeName(input));
  }
  const uint8_t options = input.U8();
  if ((options & 1) != 0) {
    field->mutable_options()->SetExtension(weft::count, static_cast<uint32_t>(input.Number()));
  }
  if ((options & 2) != 0) {
    field->mutable_options()->SetExtension(weft::bytes, static_cast<uint32_t>(input.Number()));
  }
  if ((options & 4) != 0) field->mutable_options()->SetExtension(weft::sequence, true);
  if (options >= 240 && message->oneof_decl_size() > 0) {
    field->set_oneof_index(static_cast<int>(input.Below(3)));
  }
}

void AddMessage(FuzzInput& input, pb::DescriptorProto* message, int depth) {
  message->set_name(Name(input));
  const uint8_t how = input.U8();
  if ((how & 1) != 0) message->mutable_options()->SetExtension(weft::fixed_layout, true);
  if ((how & 2) != 0) message->add_oneof_decl()->set_name("one_of");
  for (uint32_t fields = input.Below(6); fields > 0; --fields) AddField(input, message);
  if (depth < 2 && (how & 12) == 12) AddMessage(input, message->add_nested_type(), depth + 1);
}

void AddService(FuzzInput& input, pb::ServiceDescriptorProto* service) {
  service->set_name(Name(input));
  for (uint32_t methods = input.Below(6); methods > 0; --methods) {
    pb::MethodDescriptorProto* const method = service->add_method();
    method->set_name(Name(input));
    method->set_input_type(TypeName(input));
    method->set_output_type(TypeName(input));
    const uint8_t how = input.U8();
    if ((how & 3) == 3) method->set_client_streaming(true);
    if ((how & 12) == 12) method->set_server_streaming(true);
    if ((how & 48) == 48) method->mutable_options()->SetExtension(weft::one_way, true);
    if ((how & 64) != 0) {
      method->mutable_options()->set_idempotency_level(
          static_cast<pb::MethodOptions::IdempotencyLevel>(input.Below(3)));
    }
  }
}

pb::FileDescriptorProto MakeFile(FuzzInput& input) {
  pb::FileDescriptorProto file;
  const uint8_t how = input.U8();
  if (how == 255) {
    file.ParseFromString(std::string(AsStringView(input.Rest())));
    if (!file.has_name()) file.set_name("fuzz.proto");
    return file;
  }
  file.set_name((how & 8) != 0 ? "fuzz.proto" : "a/b-c/1.fuzz.proto");
  if ((how & 1) != 0) file.set_syntax("proto3");
  file.set_package("fuzz");
  if ((how & 2) != 0) file.add_dependency("weft/options.proto");
  if ((how & 4) != 0) file.add_dependency("weft/memory.proto");
  while (input.more() && file.message_type_size() + file.service_size() < 12) {
    switch (input.Below(6)) {
      case 0: {
        pb::EnumDescriptorProto* const made = file.add_enum_type();
        made->set_name(Name(input));
        for (uint32_t values = 1 + input.Below(4); values > 0; --values) {
          pb::EnumValueDescriptorProto* const value = made->add_value();
          value->set_name(Name(input) + "_" + std::to_string(made->value_size()));
          value->set_number(made->value_size() - 1);
        }
        break;
      }
      case 1:
        AddService(input, file.add_service());
        break;
      default:
        AddMessage(input, file.add_message_type(), 0);
    }
  }
  return file;
}

void Run(FuzzInput input) {
  // What protoc finds beside the file.
  Silent silent;
  pb::DescriptorPool pool(pb::DescriptorPool::generated_pool());
  const pb::FileDescriptorProto proto = MakeFile(input);
  const pb::FileDescriptor* const file = pool.BuildFileCollectingErrors(proto, &silent);
  if (file == nullptr) return;
  MemoryOutput first;
  std::string error;
  const bool done = Generator().Generate(file, "", &first, &error);
  WEFT_CHECK(done == error.empty());
  WEFT_CHECK(first.files.size() == (done ? 2u : 0u));
  MemoryOutput second;
  std::string same;
  WEFT_CHECK(Generator().Generate(file, "", &second, &same) == done && same == error);
  WEFT_CHECK(first.files == second.files);
}

}  // namespace
}  // namespace weft::plugin

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Linked in, and so known to the pool.
  static const bool linked = weft::RemoteRegion::descriptor() != nullptr;
  if (linked) weft::plugin::Run(weft::FuzzInput(data, size));
  return 0;
}
