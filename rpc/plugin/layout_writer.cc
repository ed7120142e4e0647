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
      "\n",
      "name", LayoutName(message), "full_name", Text(message.full_name()), "hash",
      Hexadecimal(LayoutHash(message)), "checked", layout.checked ? "true" : "false");
  WriteMembers(layout, printer);
  printer->Print("};\n");
  WriteAssertions(LayoutName(message), layout, printer);
}

// The files whose structs this one's contain.
std::set<std::string> IncludesOf(const FileDescriptor& file) {
  std::set<std::string> includes;
  for (const Descriptor* message : LayoutsInOrder(file)) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor& field = *message->field(i);
      if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (field.message_type()->file() != &file) {
        includes.insert(BaseName(*field.message_type()->file()));
      }
    }
  }
  return includes;
}

}  // namespace

void WriteLayoutIncludes(const FileDescriptor& file, Printer* printer) {
  if (LayoutsInOrder(file).empty()) return;
  printer->Print("#include \"rpc/fixed_layout.h\"\n");
  for (const std::string& base : IncludesOf(file)) {
    printer->Print("#include \"$base$.weft.h\"\n", "base", base);
  }
}

void WriteLayouts(const FileDescriptor& file, Printer* printer) {
  for (const Descriptor* message : LayoutsInOrder(file)) WriteLayout(*message, printer);
}

}  // namespace weft::plugin
