// What a message with (weft.fixed_layout) must keep to.
//
// Threads: pure functions.
#pragma once

#include <google/protobuf/descriptor.h>

#include <vector>

#include "rpc/plugin/errors.h"

namespace weft::plugin {

// Adds everything that is wrong with the file's fixed layouts, and with options that belong to
// such.
void CheckLayouts(const google::protobuf::FileDescriptor& file, Errors* errors);

// The file's messages of fixed layout, each after those of the file that it contains.
// REQUIRES: CheckLayouts() has found nothing.
std::vector<const google::protobuf::Descriptor*> LayoutsInOrder(
    const google::protobuf::FileDescriptor& file);

}  // namespace weft::plugin
