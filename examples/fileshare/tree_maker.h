// A tree of files to copy: the same for the same seed, of many sizes.
//
// Half of the bytes are in large files, of 1/2 to 64 MiB (less in small trees); the other half in
// files of 1 byte to 1 MiB, their logarithms evenly spread: some small ones of each size. Also
// empty files, empty folders, names with blanks and beyond ASCII, and different modes.
//
// Threads: the caller's. Errors: as the system says.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "examples/fileshare/folder.h"

namespace fileshare {

struct TreeSize {
  uint64_t files = 0;
  uint64_t folders = 0;
  uint64_t bytes = 0;
};

// Into an empty folder. About `bytes` bytes, at least.
absl::StatusOr<TreeSize> MakeTree(const Folder& root, uint64_t bytes, uint64_t seed);

}  // namespace fileshare
