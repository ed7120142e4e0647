#include "transport/file_stamp.h"

#include <sys/stat.h>

#include <ctime>

namespace weft {
namespace {

// The coarsest tick of a clock that file systems have.
constexpr int64_t kYoungNs = 2'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

FileStamp LookAt(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {found.st_dev, found.st_ino, Nanoseconds(found.st_mtim), Nanoseconds(found.st_ctim),
          found.st_size};
}

}  // namespace

bool LookForChange(const std::string& path, std::optional<FileStamp>* seen) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return LookForChange(path, seen, Nanoseconds(now));
}

bool LookForChange(const std::string& path, std::optional<FileStamp>* seen, int64_t now_ns) {
  const FileStamp found = LookAt(path);
  if (found == *seen) return false;
  *seen = found;
  if (found.bytes >= 0 && now_ns - found.changed_ns < kYoungNs) seen->reset();
  return true;
}

}  // namespace weft
