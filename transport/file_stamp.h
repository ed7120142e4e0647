// Which state of a file was read: for those who look at files now and then (stat(2)) and read them
// again when they have changed.
//
//   seen = UnlessYoung(LookAtFile(path));  // before it is read: a later change is seen later
//   text = ...
//   ...
//   if (LookAtFile(path) != seen) ...      // the same again
//
// Two changes within one tick of a file system's clock (4 ms, on some 1 s) may leave the same
// stamp. So a file that has just changed has none, and is read again with the next look: who reads
// it compares what stands in it with what stood there before.
//
// Threads: any. A file system that hangs (NFS without its server) holds up who looks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

struct FileStamp {
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // also by rename(2) and utimes(2)
  uint64_t inode = 0;
  int64_t bytes = -1;  // -1: there is none
  bool operator==(const FileStamp&) const = default;
};

FileStamp LookAtFile(const std::string& path);

// nullopt for a file that changed within the last second: it equals no later stamp, so the file is
// read again.
std::optional<FileStamp> UnlessYoung(const FileStamp& stamp);
// The same at another time, in ns since 1970.
std::optional<FileStamp> UnlessYoung(const FileStamp& stamp, int64_t now_ns);

}  // namespace weft
