#include "transport/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/status.h"
#include "core/strings.h"
#include "transport/descriptor.h"

namespace weft {

absl::StatusOr<std::string> ReadFile(int file, size_t most_bytes, std::string_view action) {
  std::string text(most_bytes, '\0');
  size_t bytes = 0;
  while (bytes < text.size()) {
    const ssize_t count = ::read(file, text.data() + bytes, text.size() - bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return StatusFromErrno(errno, action);
    if (count == 0) break;
    bytes += static_cast<size_t>(count);
  }
  text.resize(bytes);
  return text;
}

absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes,
                                            std::string_view name) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return StatusFromErrno(errno, StrCat("open ", name));
  struct stat found {};
  if (::fstat(file.get(), &found) != 0) return StatusFromErrno(errno, StrCat("look at ", name));
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(StrCat(name, " is no regular file"));
  }
  // One more than it has; and what it has where it does not say so (/proc), or grows.
  constexpr size_t kUsualBytes = 4096;
  const size_t has_bytes = found.st_size > 0 ? static_cast<size_t>(found.st_size) : kUsualBytes;
  const size_t room = std::min(has_bytes, most_bytes) + 1;
  absl::StatusOr<std::string> text = ReadFile(file.get(), room, StrCat("read ", name));
  if (text.ok() && text->size() == room && room <= most_bytes) {
    ::lseek(file.get(), 0, SEEK_SET);
    text = ReadFile(file.get(), most_bytes + 1, StrCat("read ", name));
  }
  if (text.ok() && text->size() > most_bytes) {
    return absl::InvalidArgumentError(StrCat(name, " has more than ", most_bytes, " bytes"));
  }
  return text;
}

}  // namespace weft
