// A folder, and safe ways to what is below it.
//
// A path is walked name by name from an open folder (openat, O_NOFOLLOW): no link is followed
// anywhere on the way, there is no ".." (relative_path.h), so no path leads out of the folder, also
// when somebody moves things meanwhile. Only folders and regular files are seen: what else there is
// (links, devices, sockets, pipes) is not listed and not opened.
//
// Threads: any, several at once. Lifetime: holds one descriptor.
// Errors: NOT_FOUND; INVALID_ARGUMENT for a path that is none; FAILED_PRECONDITION for what is of
//   the wrong kind, links too; PERMISSION_DENIED, RESOURCE_EXHAUSTED as the system says.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/descriptor.h"

namespace fileshare {

inline constexpr uint32_t kModeBits = 0777;  // that are kept; the others give rights away

// Of one ListReply: with the longest names about 300 KiB.
inline constexpr size_t kMaxListEntries = 1024;

struct FileInfo {
  bool is_folder = false;
  uint32_t mode = 0;     // kModeBits of it
  uint64_t bytes = 0;    // 0 for folders
  uint64_t version = 0;  // another one when the file has changed; never 0
};

struct Entry {
  std::string name;
  FileInfo info;
};

// An open regular file, for reading.
struct OpenedFile {
  weft::Descriptor descriptor;
  FileInfo info;

  // Up to `bytes` from `offset` on; fewer only at the file's end.
  absl::StatusOr<size_t> ReadAt(uint64_t offset, std::byte* to, size_t bytes) const;
};

class Folder {
 public:
  // Any path of this machine, links followed: it is the user's own word.
  static absl::StatusOr<Folder> Open(const std::string& path);

  // What is below, by relative path.
  absl::StatusOr<Folder> Walk(std::string_view path) const;
  absl::StatusOr<OpenedFile> OpenFile(std::string_view path) const;
  absl::StatusOr<FileInfo> Look(std::string_view path) const;

  // Makes a folder with that mode; one that is there gets it. Its parent has to be there.
  absl::Status MakeFolder(std::string_view path, uint32_t mode) const;

  // Names in bytewise order, those after `after`, the first `limit` of them. Reads the whole
  // folder, and has no more than that in memory. REQUIRES: limit > 0.
  absl::StatusOr<std::vector<Entry>> List(const std::string& after, size_t limit) const;

  int fd() const { return descriptor_.get(); }

 private:
  explicit Folder(weft::Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  weft::Descriptor descriptor_;
};

// The folder that a path's last name is in. INVALID_ARGUMENT for the empty path.
struct Place {
  Folder folder;
  std::string name;
};
absl::StatusOr<Place> FindPlace(const Folder& root, std::string_view path);

FileInfo InfoOf(const struct stat& status);

}  // namespace fileshare
