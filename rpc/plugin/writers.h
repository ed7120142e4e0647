// Write the two generated files of one .proto file.
//
// Threads: pure functions. REQUIRES: FindErrors(file) is empty. Output depends on the file alone.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

#include <algorithm>
#include <map>
#include <string>

namespace weft::plugin {

// What templates call a method's parts: $service$, $Method$, $Request$, $Reply$, ...
using Variables = std::map<std::string, std::string>;
Variables MethodVariables(const google::protobuf::MethodDescriptor& method);
// The same of the form with structs: $Request$ and $Reply$ are those, where there are such.
Variables LayoutVariables(const google::protobuf::MethodDescriptor& method);

// What the forms of a method of streams are, by what is a stream in it: the first part for requests
// alone, the second for replies alone, the third for both.
template <class Method>
const char* ByStreams(const Method& method, const char* requests, const char* replies,
                      const char* both) {
  if (method.client_streaming() && method.server_streaming()) return both;
  return method.client_streaming() ? requests : replies;
}

// The .proto file's own comment before a declaration.
template <class D>
void WriteComment(const D& descriptor, google::protobuf::io::Printer* printer) {
  google::protobuf::SourceLocation location;
  if (!descriptor.GetSourceLocation(&location)) return;
  const std::string& text = location.leading_comments;
  for (size_t from = 0; from < text.size();) {
    const size_t end = std::min(text.find('\n', from), text.size());
    printer->Print("//$line$\n", "line", text.substr(from, end - from));
    from = end + 1;
  }
}

// What NAME.weft.h needs for its structs, and the structs of fixed layout.
void WriteLayoutIncludes(const google::protobuf::FileDescriptor& file,
                         google::protobuf::io::Printer* printer);
void WriteLayouts(const google::protobuf::FileDescriptor& file,
                  google::protobuf::io::Printer* printer);
// Between the structs and their messages.
void WriteLayoutFunctions(const google::protobuf::FileDescriptor& file,
                          google::protobuf::io::Printer* printer);

// NAME.weft.h: the structs and classes.
void WriteHeader(const google::protobuf::FileDescriptor& file,
                 google::protobuf::io::Printer* printer);

// NAME.weft.cc: their functions and the method tables.
void WriteSource(const google::protobuf::FileDescriptor& file,
                 google::protobuf::io::Printer* printer);

}  // namespace weft::plugin
