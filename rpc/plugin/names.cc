#include "rpc/plugin/names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "weft/options.pb.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// Sorted.
constexpr std::string_view kCppKeywords[] = {
    "alignas",       "alignof",     "and",
    "and_eq",        "asm",         "auto",
    "bitand",        "bitor",       "bool",
    "break",         "case",        "catch",
    "char",          "char16_t",    "char32_t",
    "char8_t",       "class",       "co_await",
    "co_return",     "co_yield",    "compl",
    "concept",       "const",       "const_cast",
    "consteval",     "constexpr",   "constinit",
    "continue",      "decltype",    "default",
    "delete",        "do",          "double",
    "dynamic_cast",  "else",        "enum",
    "explicit",      "export",      "extern",
    "false",         "float",       "for",
    "friend",        "goto",        "if",
    "inline",        "int",         "long",
    "mutable",       "namespace",   "new",
    "noexcept",      "not",         "not_eq",
    "nullptr",       "operator",    "or",
    "or_eq",         "private",     "protected",
    "public",        "register",    "reinterpret_cast",
    "requires",      "return",      "short",
    "signed",        "sizeof",      "static",
    "static_assert", "static_cast", "struct",
    "switch",        "template",    "this",
    "thread_local",  "throw",       "true",
    "try",           "typedef",     "typeid",
    "typename",      "union",       "unsigned",
    "using",         "virtual",     "void",
    "volatile",      "wchar_t",     "while",
    "xor",           "xor_eq",
};

std::string Escaped(std::string name) {
  if (IsCppKeyword(name)) name += '_';
  return name;
}

// Nested types are flattened: the outer names, joined by underscores.
template <class D>
std::string FlatName(const D& descriptor) {
  std::string name = Text(descriptor.name());
  for (const Descriptor* outer = descriptor.containing_type(); outer != nullptr;
       outer = outer->containing_type()) {
    name.insert(0, Text(outer->name()) + "_");
  }
  return Escaped(std::move(name));
}

template <class D>
std::string Qualified(const D& descriptor) {
  const std::string scope = Namespace(*descriptor.file());
  return (scope.empty() ? "::" : "::" + scope + "::") + ClassName(descriptor);
}

}  // namespace

std::string ClassName(const Descriptor& message) { return FlatName(message); }
std::string ClassName(const EnumDescriptor& enumeration) { return FlatName(enumeration); }

std::string QualifiedName(const Descriptor& message) { return Qualified(message); }
std::string QualifiedName(const EnumDescriptor& enumeration) { return Qualified(enumeration); }

std::string MemberName(const FieldDescriptor& field) { return Escaped(Text(field.name())); }

std::string AccessorName(const FieldDescriptor& field) {
  std::string name = Text(field.name());
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return Escaped(std::move(name));
}

bool IsStreaming(const google::protobuf::MethodDescriptor& method) {
  return method.client_streaming() || method.server_streaming();
}

bool IsOneWay(const google::protobuf::MethodDescriptor& method) {
  return method.options().GetExtension(::weft::one_way);
}

std::string Namespace(const FileDescriptor& file) {
  std::string result;
  for (char c : Text(file.package())) result += c == '.' ? std::string("::") : std::string(1, c);
  return result;
}

std::string BaseName(const FileDescriptor& file) {
  constexpr std::string_view kSuffix = ".proto";
  std::string name = Text(file.name());
  if (name.size() > kSuffix.size() && std::string_view(name).ends_with(kSuffix)) {
    name.resize(name.size() - kSuffix.size());
  }
  return name;
}

std::string KeywordInPackage(const FileDescriptor& file) {
  const std::string package = Text(file.package());
  for (size_t from = 0; from < package.size();) {
    const size_t dot = std::min(package.find('.', from), package.size());
    std::string part = package.substr(from, dot - from);
    if (IsCppKeyword(part)) return part;
    from = dot + 1;
  }
  return "";
}

std::string Hexadecimal(uint64_t number) {
  std::string digits(16, '0');
  for (size_t i = digits.size(); i-- > 0; number >>= 4) digits[i] = "0123456789abcdef"[number & 15];
  return digits;
}

bool IsCppKeyword(std::string_view word) {
  return std::binary_search(std::begin(kCppKeywords), std::end(kCppKeywords), word);
}

}  // namespace weft::plugin
