// What a .proto file must keep to so that stubs and layouts can be written for it.
//
// Threads: pure functions.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

namespace weft::plugin {

// Everything that is wrong with the file's services and fixed layouts, one "line N: ..." each;
// empty if nothing is.
std::string FindErrors(const google::protobuf::FileDescriptor& file);

}  // namespace weft::plugin
