// All that is below a folder: folders before what is in them.
//
// Threads: the caller's.
#pragma once

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "examples/fileshare/folder.h"

namespace fileshare {

// Calls `visit` for each folder and file; an error from it ends the walk. Depth and the length of
// paths are bounded (relative_path.h): beyond, INVALID_ARGUMENT.
absl::Status WalkTree(
    const Folder& root,
    absl::FunctionRef<absl::Status(const std::string& path, const FileInfo& info)> visit);

}  // namespace fileshare
