#include "rpc/plugin/layout.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "rpc/plugin/names.h"
#include "weft/options.pb.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

// One element of a field.
struct Element {
  std::string type;  // in C++
  std::string text;  // in the text that is hashed
  uint64_t bytes = 0;
  uint64_t alignment = 0;
};

Element Number(const char* type, const char* text, uint64_t bytes) {
  return {type, text, bytes, bytes};
}

Element ElementOf(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return Number("::std::int32_t", "i32", 4);
    case FieldDescriptor::CPPTYPE_UINT32:
      return Number("::std::uint32_t", "u32", 4);
    case FieldDescriptor::CPPTYPE_INT64:
      return Number("::std::int64_t", "i64", 8);
    case FieldDescriptor::CPPTYPE_UINT64:
      return Number("::std::uint64_t", "u64", 8);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return Number("float", "f32", 4);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return Number("double", "f64", 8);
    case FieldDescriptor::CPPTYPE_BOOL:
      return Number("::weft::FixedBool", "bool", 1);
    case FieldDescriptor::CPPTYPE_ENUM:
      return {QualifiedName(*field.enum_type()), "enum:" + Text(field.enum_type()->full_name()), 4,
              4};
    case FieldDescriptor::CPPTYPE_STRING: {
      const uint64_t bytes = field.options().GetExtension(::weft::bytes);
      return {"::std::array<::std::byte, " + std::to_string(bytes) + ">",
              "bytes" + std::to_string(bytes), bytes, 1};
    }
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Descriptor& message = *field.message_type();
      const Layout layout = LayOut(message);
      return {QualifiedLayoutName(message),
              Text(message.full_name()) + "#" + Hexadecimal(LayoutHash(message)), layout.bytes,
              layout.alignment};
    }
  }
  return {};
}

// Appends members to a layout.
class Placer {
 public:
  explicit Placer(Layout* layout) : layout_(layout) {}

  void Place(const FieldDescriptor& field) {
    Element element = ElementOf(field);
    AlignTo(element.alignment);
    uint64_t bytes = element.bytes;
    std::string type = std::move(element.type);
    if (field.is_repeated()) {
      const uint64_t count = field.options().GetExtension(::weft::count);
      type = "::std::array<" + type + ", " + std::to_string(count) + ">";
      bytes *= count;
    }
    Append(&field, MemberName(field), std::move(type), bytes);
  }

  void Finish() {
    if (layout_->checked) {
      AlignTo(8);
      Append(nullptr, "checksum_", "::std::uint64_t", 8);
    }
    AlignTo(layout_->alignment);
  }

 private:
  void AlignTo(uint64_t alignment) {
    layout_->alignment = std::max(layout_->alignment, alignment);
    const uint64_t gap = (alignment - layout_->bytes % alignment) % alignment;
    if (gap == 0) return;
    Append(nullptr, "padding_" + std::to_string(paddings_++) + "_",
           "::std::array<::std::byte, " + std::to_string(gap) + ">", gap);
  }

  void Append(const FieldDescriptor* field, std::string name, std::string type, uint64_t bytes) {
    layout_->members.push_back({field, std::move(name), std::move(type), layout_->bytes, bytes});
    layout_->bytes += bytes;
  }

  Layout* const layout_;
  int paddings_ = 0;
};

}  // namespace

bool HasFixedLayout(const Descriptor& message) {
  return message.options().GetExtension(::weft::fixed_layout);
}

bool IsSequence(const FieldDescriptor& field) {
  return field.options().GetExtension(::weft::sequence);
}

Layout LayOut(const Descriptor& message) {
  Layout layout;
  Placer placer(&layout);
  for (int i = 0; i < message.field_count(); ++i) {
    layout.checked |= IsSequence(*message.field(i));
    placer.Place(*message.field(i));
  }
  placer.Finish();
  return layout;
}

std::string LayoutText(const Descriptor& message) {
  const Layout layout = LayOut(message);
  std::string text = Text(message.full_name()) + "{";
  for (const LayoutMember& member : layout.members) {
    if (member.field == nullptr) continue;
    const FieldDescriptor& field = *member.field;
    text += std::to_string(member.offset) + " " + Text(field.name()) + " " + ElementOf(field).text;
    if (field.is_repeated()) {
      text += "*" + std::to_string(field.options().GetExtension(::weft::count));
    }
    text += IsSequence(field) ? " sequence;" : ";";
  }
  return text + "}" + std::to_string(layout.bytes);
}

uint64_t LayoutHash(const Descriptor& message) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : LayoutText(message)) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  }
  return hash;
}

std::string LayoutName(const Descriptor& message) { return ClassName(message) + "Layout"; }

std::string QualifiedLayoutName(const Descriptor& message) {
  return QualifiedName(message) + "Layout";
}

bool HasLayouts(const google::protobuf::MethodDescriptor& method) {
  return HasFixedLayout(*method.input_type()) || HasFixedLayout(*method.output_type());
}

bool HasLayouts(const google::protobuf::ServiceDescriptor& service) {
  for (int i = 0; i < service.method_count(); ++i) {
    if (HasLayouts(*service.method(i))) return true;
  }
  return false;
}

}  // namespace weft::plugin
