// Copies between a folder of this machine and the server's, several chunks at once.
//
// What is copied takes the place of what is there: a file becomes DESTINATION itself; what is in a
// folder goes into DESTINATION, which is made where it is not there. Files keep their modes, appear
// whole (atomic_file.h), and replace others of their name; folders are made writable for their
// owner. Nothing is removed. Links and other special files are left out.
//
// Threads: the caller's, and those of the lanes.
// Errors: the first one ends the copy; files that were complete by then stay. RESOURCE_EXHAUSTED: a
//   folder of more files than one may have (RemoteFolder::Options). A whole tree is bounded by the
//   room where it is copied to.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "examples/fileshare/client/remote_folder.h"

namespace fileshare::client {

struct Copied {
  uint64_t files = 0;
  uint64_t folders = 0;
  uint64_t bytes = 0;
};

struct CopyOptions {
  uint32_t outstanding = 8;  // chunks under way, 1 to kMaxOutstanding; each has 1 MiB of memory
};
inline constexpr uint32_t kMaxOutstanding = 64;

absl::StatusOr<Copied> CopyFromServer(const RemoteFolder& remote, const std::string& source,
                                      const std::string& destination, const CopyOptions& options);

absl::StatusOr<Copied> CopyToServer(const RemoteFolder& remote, const std::string& source,
                                    const std::string& destination, const CopyOptions& options);

}  // namespace fileshare::client
