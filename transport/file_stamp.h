// Which state of a file was read: for those who look at files now and then (stat(2)) and read them
// again when they have changed.
//
//   if (!LookForChange(path, &seen)) return;
//   text = ...  // after the look: what changes meanwhile is seen by the next one
//
// Two changes within one tick of a file system's clock (4 ms, on FAT 2 s) may leave the same stamp.
// So a file that has just changed has none, and is read again after the next look: whoever reads it
// may find what stood there before.
//
// Threads: any. A file system that hangs (NFS without its server) holds up who looks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

struct FileStamp {
  uint64_t device = 0;
  uint64_t inode = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // also by rename(2) and utimes(2)
  int64_t bytes = -1;      // -1: there is none
  bool operator==(const FileStamp&) const = default;
};

// Looks at the file. True: it is to be read, for it is not as it was `*seen`, or that is nullopt.
// Keeps in `*seen` what it has found; nullopt where it has changed within the last two seconds, or,
// by a clock that is ahead, will have changed: until then it is read at each look.
bool LookForChange(const std::string& path, std::optional<FileStamp>* seen);
// The same at another time, in ns since 1970.
bool LookForChange(const std::string& path, std::optional<FileStamp>* seen, int64_t now_ns);

}  // namespace weft
