#include "transport/read_file.h"

#include <unistd.h>

#include <cerrno>

#include "core/status.h"

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

}  // namespace weft
