// How names of a .proto file are spelled in C++.
//
// Message and namespace names follow protoc's own C++ generator, since they must be the same.
//
// Threads: pure functions.
#pragma once

#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace weft::plugin {

// A name as a string, whichever of string and string_view this protobuf's descriptors return.
template <class Name>
std::string Text(const Name& name) {
  return std::string(name);
}

// "Kv" of a service, "Outer_Inner" of a nested message; words of C++ get protoc's underscore.
std::string ClassName(const google::protobuf::Descriptor& message);
std::string ClassName(const google::protobuf::EnumDescriptor& enumeration);

// "::weft::examples::kv::GetRequest".
std::string QualifiedName(const google::protobuf::Descriptor& message);
std::string QualifiedName(const google::protobuf::EnumDescriptor& enumeration);

// The field's own name; words of C++ get an underscore.
std::string MemberName(const google::protobuf::FieldDescriptor& field);

// What protoc's accessors are called: "x" of x(), set_x() and mutable_x().
std::string AccessorName(const google::protobuf::FieldDescriptor& field);

// Requests, replies or both are a stream of messages.
bool IsStreaming(const google::protobuf::MethodDescriptor& method);

// The method's requests are one-way messages (weft/options.proto).
bool IsOneWay(const google::protobuf::MethodDescriptor& method);

// "weft::examples::kv"; empty without a package. Keywords are not escaped: versions of protoc
// differ there, and rules.h refuses them.
std::string Namespace(const google::protobuf::FileDescriptor& file);

// The output files' common beginning: "examples/kv/kv" of "examples/kv/kv.proto".
std::string BaseName(const google::protobuf::FileDescriptor& file);

// The first part of the package that is a keyword; empty if none is.
std::string KeywordInPackage(const google::protobuf::FileDescriptor& file);

// 16 digits.
std::string Hexadecimal(uint64_t number);

// A word that C++ (up to C++20) keeps for itself.
bool IsCppKeyword(std::string_view word);

}  // namespace weft::plugin
