#include "examples/fileshare/tree_walk.h"

#include <utility>
#include <vector>

#include "core/status.h"
#include "examples/fileshare/relative_path.h"

namespace fileshare {
namespace {

constexpr size_t kAllAtOnce = ~size_t{0};

}  // namespace

absl::Status WalkTree(
    const Folder& root,
    absl::FunctionRef<absl::Status(const std::string& path, const FileInfo& info)> visit) {
  std::vector<std::string> folders = {""};  // that have not been looked into
  while (!folders.empty()) {
    const std::string path = std::move(folders.back());
    folders.pop_back();
    WEFT_ASSIGN_OR_RETURN(const Folder folder, root.Walk(path));
    WEFT_ASSIGN_OR_RETURN(const std::vector<Entry> entries, folder.List("", kAllAtOnce));
    for (const Entry& entry : entries) {
      std::string inner = JoinPath(path, entry.name);
      WEFT_RETURN_IF_ERROR(visit(inner, entry.info));
      if (entry.info.is_folder) folders.push_back(std::move(inner));
    }
  }
  return absl::OkStatus();
}

}  // namespace fileshare
