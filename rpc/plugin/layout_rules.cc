#include "rpc/plugin/layout_rules.h"

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "rpc/plugin/layout.h"
#include "rpc/plugin/names.h"
#include "weft/options.pb.h"

namespace weft::plugin {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

using Messages = std::vector<const Descriptor*>;

// Members that every struct has.
constexpr std::string_view kMemberNames[] = {"kLayoutName", "kLayoutHash", "kChecked",
                                             "Message",     "CopyTo",      "CopyFrom"};

void VisitMessages(const FileDescriptor& file,
                   const std::function<void(const Descriptor&)>& visit) {
  const std::function<void(const Descriptor&)> descend = [&](const Descriptor& message) {
    if (message.options().map_entry()) return;
    visit(message);
    for (int i = 0; i < message.nested_type_count(); ++i) descend(*message.nested_type(i));
  };
  for (int i = 0; i < file.message_type_count(); ++i) descend(*file.message_type(i));
}

// All that protoc and this generator write into the namespace.
std::set<std::string> NamesOf(const FileDescriptor& file) {
  std::set<std::string> names;
  const auto add_enum = [&](const google::protobuf::EnumDescriptor& enumeration) {
    names.insert(ClassName(enumeration));
    for (int i = 0; i < enumeration.value_count(); ++i) {
      names.insert(Text(enumeration.value(i)->name()));
    }
  };
  VisitMessages(file, [&](const Descriptor& message) {
    names.insert(ClassName(message));
    for (int i = 0; i < message.enum_type_count(); ++i) add_enum(*message.enum_type(i));
  });
  for (int i = 0; i < file.enum_type_count(); ++i) add_enum(*file.enum_type(i));
  for (int i = 0; i < file.service_count(); ++i) names.insert(Text(file.service(i)->name()));
  for (int i = 0; i < file.extension_count(); ++i) names.insert(Text(file.extension(i)->name()));
  return names;
}

// Whether messages tell if the field was set, which memory can't.
bool TellsPresence(const FieldDescriptor& field) {
  if (field.is_repeated() || field.is_required()) return false;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return false;
#if GOOGLE_PROTOBUF_VERSION >= 3021000
  return field.has_presence();
#else
  return field.containing_oneof() != nullptr ||
         field.file()->syntax() == FileDescriptor::SYNTAX_PROTO2;
#endif
}

bool IsBytes(const FieldDescriptor& field) { return field.type() == FieldDescriptor::TYPE_BYTES; }

std::string BoundText() { return "1 to " + std::to_string(kMaxLayoutBytes); }
bool InBounds(uint64_t number) { return number >= 1 && number <= kMaxLayoutBytes; }

bool HasOption(const FieldDescriptor& field) {
  return field.options().HasExtension(::weft::count) ||
         field.options().HasExtension(::weft::bytes) || IsSequence(field);
}

// Of one field, as far as it can be seen without its message's layout. Stops at the first error.
std::string WrongShape(const FieldDescriptor& field) {
  const uint64_t count = field.options().GetExtension(::weft::count);
  const uint64_t bytes = field.options().GetExtension(::weft::bytes);
  if (field.is_map()) return "a map has no fixed layout";
  if (field.real_containing_oneof() != nullptr) {
    return "a oneof has no fixed layout: memory does not tell which field is set";
  }
  if (field.type() == FieldDescriptor::TYPE_GROUP) return "a group has no fixed layout";
  if (field.type() == FieldDescriptor::TYPE_STRING) {
    return "a string has no fixed layout; use bytes with [(weft.bytes) = N]";
  }
  if (TellsPresence(field)) {
    return "memory does not tell whether a field is set; remove 'optional' (in proto2: 'required')";
  }
  if (field.is_repeated() != field.options().HasExtension(::weft::count)) {
    return field.is_repeated() ? "a repeated field needs [(weft.count) = N], its number of elements"
                               : "(weft.count) belongs to repeated fields";
  }
  if (field.is_repeated() && !InBounds(count)) return "(weft.count) must be " + BoundText();
  if (IsBytes(field) != field.options().HasExtension(::weft::bytes)) {
    return IsBytes(field) ? "a bytes field needs [(weft.bytes) = N], its length"
                          : "(weft.bytes) belongs to bytes fields";
  }
  if (IsBytes(field) && !InBounds(bytes)) return "(weft.bytes) must be " + BoundText();
  return "";
}

std::string WrongName(const FieldDescriptor& field) {
  const std::string name = Text(field.name());
  if (name.back() == '_') return "names that end in '_' are the generator's; rename the field";
  const bool taken = std::count(std::begin(kMemberNames), std::end(kMemberNames), name) != 0 ||
                     name == LayoutName(*field.containing_type());
  return taken ? "'" + name + "' is a name in the generated struct; rename the field" : "";
}

std::string WrongSequence(const FieldDescriptor& field) {
  if (!IsSequence(field)) return "";
  if (field.type() != FieldDescriptor::TYPE_FIXED64 || field.is_repeated()) {
    return "the sequence word must be a fixed64";
  }
  return field.index() == 0 ? "" : "the sequence word must be the first field";
}

void CheckMessage(const Descriptor& message, Messages* inside, Errors* errors);

// A nested message must be good itself; what is wrong with one of this file is said there.
std::string WrongMessage(const FieldDescriptor& field, Messages* inside) {
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) return "";
  const Descriptor& message = *field.message_type();
  const std::string name = Text(message.full_name());
  if (!HasFixedLayout(message)) {
    return "its type " + name + " has no fixed layout; give it option (weft.fixed_layout) = true";
  }
  if (std::count(inside->begin(), inside->end(), &message) != 0) {
    return "its type " + name + " would contain itself";
  }
  for (int i = 0; i < message.field_count(); ++i) {
    if (IsSequence(*message.field(i))) {
      return "its type " + name + " has a sequence word: only whole records can have one";
    }
  }
  Errors errors;
  CheckMessage(message, inside, &errors);
  return errors.empty() ? "" : "its type " + name + " has errors";
}

void CheckField(const FieldDescriptor& field, Messages* inside, Errors* errors) {
  const std::string findings[] = {WrongShape(field), WrongName(field), WrongSequence(field)};
  bool good = true;
  for (const std::string& wrong : findings) {
    if (wrong.empty()) continue;
    errors->Add(field, wrong);
    good = false;
  }
  if (!good) return;
  if (const std::string wrong = WrongMessage(field, inside); !wrong.empty()) {
    errors->Add(field, wrong);
  }
}

// `inside`: the messages that contain this one.
void CheckMessage(const Descriptor& message, Messages* inside, Errors* errors) {
  Errors found;
  inside->push_back(&message);
  for (int i = 0; i < message.field_count(); ++i) CheckField(*message.field(i), inside, &found);
  inside->pop_back();
  if (message.extension_range_count() > 0) found.Add(message, "extensions have no fixed layout");
  if (message.field_count() == 0) found.Add(message, "a fixed layout needs a field");
  if (found.empty()) {
    if (const uint64_t bytes = LayOut(message).bytes; bytes > kMaxLayoutBytes) {
      found.Add(message, "the layout has " + std::to_string(bytes) + " bytes; the limit is " +
                             std::to_string(kMaxLayoutBytes));
    }
  }
  errors->Append(found);
}

void CheckStrayOptions(const Descriptor& message, Errors* errors) {
  for (int i = 0; i < message.field_count(); ++i) {
    if (!HasOption(*message.field(i))) continue;
    errors->Add(*message.field(i),
                "(weft.count), (weft.bytes) and (weft.sequence) belong to messages with option "
                "(weft.fixed_layout) = true");
  }
}

}  // namespace

void CheckLayouts(const FileDescriptor& file, Errors* errors) {
  const std::set<std::string> names = NamesOf(file);
  VisitMessages(file, [&](const Descriptor& message) {
    if (!HasFixedLayout(message)) return CheckStrayOptions(message, errors);
    if (const std::string word = KeywordInPackage(file); !word.empty()) {
      errors->Add(message,
                  "'" + word + "' in the package name is a C++ keyword; rename the package");
    }
    if (names.count(LayoutName(message)) != 0) {
      errors->Add(message, "the name of its struct, " + LayoutName(message) +
                               ", is taken in this file; rename one of them");
    }
    Messages inside;
    CheckMessage(message, &inside, errors);
  });
}

Messages LayoutsInOrder(const FileDescriptor& file) {
  Messages ordered;
  const std::function<void(const Descriptor&)> add = [&](const Descriptor& message) {
    if (message.file() != &file || !HasFixedLayout(message)) return;
    if (std::count(ordered.begin(), ordered.end(), &message) != 0) return;
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) add(*field.message_type());
    }
    ordered.push_back(&message);
  };
  VisitMessages(file, add);
  return ordered;
}

}  // namespace weft::plugin
