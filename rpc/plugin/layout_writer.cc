#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "rpc/plugin/layout.h"
#include "rpc/plugin/layout_rules.h"
#include "rpc/plugin/names.h"
#include "rpc/plugin/writers.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::io::Printer;

void WriteMembers(const Layout& layout, Printer* printer) {
  printer->Indent();
  for (const LayoutMember& member : layout.members) {
    if (member.field != nullptr) WriteComment(*member.field, printer);
    printer->Print("$type$ $name$ = {};\n", "type", member.type, "name", member.name);
  }
  printer->Outdent();
}

// What another compiler, or a reader, may rely on.
void WriteAssertions(const std::string& name, const Layout& layout, Printer* printer) {
  printer->Print(
      "static_assert(::weft::FixedLayout<$name$>);\n"
      "static_assert(sizeof($name$) == $bytes$ && alignof($name$) == $alignment$);\n",
      "name", name, "bytes", std::to_string(layout.bytes), "alignment",
      std::to_string(layout.alignment));
  for (const LayoutMember& member : layout.members) {
    printer->Print("static_assert(offsetof($name$, $member$) == $offset$);\n", "name", name,
                   "member", member.name, "offset", std::to_string(member.offset));
  }
  printer->Print("\n");
}

void WriteLayout(const Descriptor& message, Printer* printer) {
  const Layout layout = LayOut(message);
  WriteComment(message, printer);
  printer->Print(
      "struct $name$ {\n"
      "  static constexpr ::std::string_view kLayoutName = \"$full_name$\";\n"
      "  static constexpr ::std::uint64_t kLayoutHash = 0x$hash$;\n"
      "  static constexpr bool kChecked = $checked$;\n"
      "  using Message = $Message$;\n"
      "\n",
      "name", LayoutName(message), "full_name", Text(message.full_name()), "hash",
      Hexadecimal(LayoutHash(message)), "checked", layout.checked ? "true" : "false", "Message",
      QualifiedName(message));
  WriteMembers(layout, printer);
  printer->Print(
      "\n"
      "  void CopyTo(Message* message_) const;\n"
      "  ::absl::Status CopyFrom(const Message& message_);\n"
      "};\n");
  WriteAssertions(LayoutName(message), layout, printer);
}

// The files whose structs this one's contain, or its methods take.
std::set<std::string> IncludesOf(const FileDescriptor& file) {
  std::set<std::string> includes;
  const auto add = [&](const Descriptor& message) {
    if (HasFixedLayout(message) && message.file() != &file) {
      includes.insert(BaseName(*message.file()));
    }
  };
  for (const Descriptor* message : LayoutsInOrder(file)) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor& field = *message->field(i);
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) add(*field.message_type());
    }
  }
  for (int i = 0; i < file.service_count(); ++i) {
    for (int j = 0; j < file.service(i)->method_count(); ++j) {
      add(*file.service(i)->method(j)->input_type());
      add(*file.service(i)->method(j)->output_type());
    }
  }
  return includes;
}

// Whether the file's own generator, protoc, treats numbers that the enum does not name as unknown.
bool IsClosedEnum(const FieldDescriptor& field) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_ENUM) return false;
#if GOOGLE_PROTOBUF_VERSION >= 4022000
  return field.legacy_enum_field_treated_as_closed();
#else
  return field.file()->syntax() == FileDescriptor::SYNTAX_PROTO2;
#endif
}

// How one field goes into the message. $value$: what is copied, an element of a repeated field.
const char* CopyToTemplate(const FieldDescriptor& field) {
  if (IsClosedEnum(field)) {
    return field.is_repeated()
               ? "for (const auto value_ : this->$member$) {\n"
                 "  message_->add_$field$(::weft::internal::KnownEnum(\n"
                 "      value_, &$Enum$_IsValid, static_cast<$Enum$>($default$)));\n"
                 "}\n"
               : "message_->set_$field$(::weft::internal::KnownEnum(\n"
                 "    this->$member$, &$Enum$_IsValid, static_cast<$Enum$>($default$)));\n";
  }
  if (field.is_repeated() || field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    return "::weft::internal::CopyOut(this->$member$, message_->mutable_$field$());\n";
  }
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    return "this->$member$.CopyTo(message_->mutable_$field$());\n";
  }
  return "message_->set_$field$(this->$member$);\n";
}

const char* CopyFromTemplate(const FieldDescriptor& field) {
  const bool plain = !field.is_repeated() && field.cpp_type() != FieldDescriptor::CPPTYPE_STRING &&
                     field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE;
  return plain ? "this->$member$ = message_.$field$();\n"
               : "filler_.Copy(\"$name$\", message_.$field$(), &this->$member$);\n";
}

Variables FieldVariables(const FieldDescriptor& field) {
  Variables variables = {
      {"name", Text(field.name())},
      {"member", MemberName(field)},
      {"field", AccessorName(field)},
  };
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    variables["Enum"] = QualifiedName(*field.enum_type());
    variables["default"] = std::to_string(field.default_value_enum()->number());
  }
  return variables;
}

void WriteCopies(const Descriptor& message, Printer* printer) {
  const std::string name = LayoutName(message);
  printer->Print(
      "void $name$::CopyTo(Message* message_) const {\n"
      "  message_->Clear();\n",
      "name", name);
  printer->Indent();
  for (int i = 0; i < message.field_count(); ++i) {
    printer->Print(FieldVariables(*message.field(i)), CopyToTemplate(*message.field(i)));
  }
  printer->Outdent();
  printer->Print(
      "}\n\n"
      "::absl::Status $name$::CopyFrom(const Message& message_) {\n"
      "  ::weft::internal::LayoutFiller filler_(this);\n",
      "name", name);
  printer->Indent();
  for (int i = 0; i < message.field_count(); ++i) {
    printer->Print(FieldVariables(*message.field(i)), CopyFromTemplate(*message.field(i)));
  }
  if (LayOut(message).checked) {
    printer->Print(
        "this->checksum_ = ::weft::RecordChecksum(reinterpret_cast<const ::std::byte*>(this),\n"
        "                                         sizeof(*this));\n");
  }
  printer->Outdent();
  printer->Print(
      "  return filler_.status();\n"
      "}\n\n");
}

}  // namespace

void WriteLayoutIncludes(const FileDescriptor& file, Printer* printer) {
  if (!LayoutsInOrder(file).empty()) printer->Print("#include \"weft/fixed_layout.h\"\n");
  for (const std::string& base : IncludesOf(file)) {
    printer->Print("#include \"$base$.weft.h\"\n", "base", base);
  }
}

void WriteLayouts(const FileDescriptor& file, Printer* printer) {
  for (const Descriptor* message : LayoutsInOrder(file)) WriteLayout(*message, printer);
}

void WriteLayoutFunctions(const FileDescriptor& file, Printer* printer) {
  for (const Descriptor* message : LayoutsInOrder(file)) WriteCopies(*message, printer);
}

}  // namespace weft::plugin
