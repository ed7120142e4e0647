#include "transport/file_stamp.h"

#include <sys/stat.h>

#include <ctime>

namespace weft {
namespace {

// The coarsest tick of a clock that file systems have.
constexpr int64_t kYoungNs = 1'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return time.tv_sec * int64_t{1'000'000'000} + time.tv_nsec;
}

}  // namespace

FileStamp LookAtFile(const std::string& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return {};
  return {Nanoseconds(found.st_mtim), Nanoseconds(found.st_ctim), found.st_ino, found.st_size};
}

std::optional<FileStamp> UnlessYoung(const FileStamp& stamp) {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return UnlessYoung(stamp, Nanoseconds(now));
}

std::optional<FileStamp> UnlessYoung(const FileStamp& stamp, int64_t now_ns) {
  if (stamp.bytes >= 0 && now_ns - stamp.changed_ns < kYoungNs) return std::nullopt;
  return stamp;
}

}  // namespace weft
