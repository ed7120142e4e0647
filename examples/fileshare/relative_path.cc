#include "examples/fileshare/relative_path.h"

#include "absl/status/status.h"
#include "absl/strings/str_split.h"
#include "core/strings.h"

namespace fileshare {

bool IsName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

absl::StatusOr<std::vector<std::string>> SplitPath(std::string_view path) {
  if (path.empty()) return std::vector<std::string>();
  if (path.size() > kMaxPathBytes) {
    return absl::InvalidArgumentError(
        weft::StrCat("a path of ", path.size(), " bytes; the limit is ", kMaxPathBytes));
  }
  std::vector<std::string> names = absl::StrSplit(absl::string_view(path.data(), path.size()), '/');
  if (names.size() > kMaxDepth) {
    return absl::InvalidArgumentError(
        weft::StrCat("a path of ", names.size(), " names; the limit is ", kMaxDepth));
  }
  for (const std::string& name : names) {
    if (IsName(name)) continue;
    return absl::InvalidArgumentError(
        weft::StrCat("a path relative to the shared folder has no name \"", name,
                     "\" in it (no \"..\", \".\", \"//\", no '/' at its ends)"));
  }
  return names;
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  return folder.empty() ? std::string(name) : weft::StrCat(folder, "/", name);
}

}  // namespace fileshare
