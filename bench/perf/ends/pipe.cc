#include "bench/perf/ends/pipe.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "core/clock.h"
#include "core/status.h"
#include "core/strings.h"

namespace weft::bench {
namespace {

// More than any text that our processes exchange: bounds what a confused one can make us read.
constexpr size_t kMaxLineBytes = 4096;

absl::Status Gone() { return absl::UnavailableError("the other process is gone"); }

// Waits until `fd` can be read.
absl::Status AwaitReadable(int fd, uint64_t deadline_ns) {
  while (true) {
    int timeout_ms = -1;
    if (deadline_ns != kNever) {
      const uint64_t now_ns = Clock::Real().NowNs();
      if (now_ns >= deadline_ns) return absl::DeadlineExceededError("no answer in time");
      timeout_ms = static_cast<int>((deadline_ns - now_ns) / kNsPerMs) + 1;
    }
    pollfd waiting = {fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, timeout_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return StatusFromErrno(errno, "poll");
  }
}

}  // namespace

absl::Status WriteAll(int fd, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = send(fd, next, bytes, MSG_NOSIGNAL);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return Gone();
    next += written;
    bytes -= static_cast<size_t>(written);
  }
  return absl::OkStatus();
}

absl::Status ReadAll(int fd, void* data, size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = read(fd, next, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Gone();
    next += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status WriteLine(int fd, std::string_view line) {
  const std::string text = StrCat(line, "\n");
  return WriteAll(fd, text.data(), text.size());
}

absl::StatusOr<std::string> ReadLine(int fd, int timeout_ms) {
  const uint64_t deadline_ns =
      timeout_ms < 0 ? kNever
                     : Clock::Real().NowNs() + static_cast<uint64_t>(timeout_ms) * kNsPerMs;
  std::string line;
  // Byte by byte: nothing behind the line is taken, and lines are few.
  WEFT_RETURN_IF_ERROR(AwaitReadable(fd, deadline_ns));
  while (line.size() < kMaxLineBytes) {
    char next = 0;
    WEFT_RETURN_IF_ERROR(ReadAll(fd, &next, 1));
    if (next == '\n') return line;
    line.push_back(next);
  }
  return absl::DataLossError("a line too long");
}

}  // namespace weft::bench
