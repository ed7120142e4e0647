// make_tree FOLDER MIB [SEED]: fills an empty folder with files of many sizes (tree_maker.h).
//
// Exit status: 0 done, 1 failed, 2 the command line is wrong.
#include <cstdio>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "examples/fileshare/folder.h"
#include "examples/fileshare/tree_maker.h"

namespace fileshare {
namespace {

absl::StatusOr<TreeSize> Make(const std::string& path, uint64_t mib, uint64_t seed) {
  absl::StatusOr<Folder> folder = Folder::Open(path);
  if (!folder.ok()) return folder.status();
  return MakeTree(*folder, mib << 20, seed);
}

int Main(int argc, char** argv) {
  uint64_t mib = 0;
  uint64_t seed = 1;
  if (argc < 3 || argc > 4 || !absl::SimpleAtoi(argv[2], &mib) ||
      (argc == 4 && !absl::SimpleAtoi(argv[3], &seed))) {
    absl::FPrintF(stderr, "usage: make_tree FOLDER MIB [SEED]\n");
    return 2;
  }
  const auto size = Make(argv[1], mib, seed);
  if (!size.ok()) {
    absl::FPrintF(stderr, "make_tree: %s\n", size.status().ToString());
    return 1;
  }
  absl::PrintF("%d files in %d folders, %d bytes\n", size->files, size->folders, size->bytes);
  return 0;
}

}  // namespace
}  // namespace fileshare

int main(int argc, char** argv) { return fileshare::Main(argc, argv); }
