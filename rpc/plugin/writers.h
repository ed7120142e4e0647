// Write the two generated files of one .proto file.
//
// Threads: pure functions. REQUIRES: FindErrors(file) is empty. Output depends on the file alone.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/printer.h>

#include <map>
#include <string>

namespace weft::plugin {

// What templates call a method's parts: $service$, $Method$, $Request$, $Reply$, ...
using Variables = std::map<std::string, std::string>;
Variables MethodVariables(const google::protobuf::MethodDescriptor& method);

// NAME.weft.h: the classes.
void WriteHeader(const google::protobuf::FileDescriptor& file,
                 google::protobuf::io::Printer* printer);

// NAME.weft.cc: their functions and the method tables.
void WriteSource(const google::protobuf::FileDescriptor& file,
                 google::protobuf::io::Printer* printer);

}  // namespace weft::plugin
