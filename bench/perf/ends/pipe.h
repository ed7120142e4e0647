// Blocking bytes and lines over a stream socket between our own processes.
//
// Threads: one per descriptor and direction.
// Errors: UNAVAILABLE when the other side is gone; its death closes the socket.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace weft::bench {

absl::Status WriteAll(int fd, const void* data, size_t bytes);
absl::Status ReadAll(int fd, void* data, size_t bytes);

// A line without its '\n'. REQUIRES: `line` has none.
absl::Status WriteLine(int fd, std::string_view line);
// DEADLINE_EXCEEDED when no line has begun after `timeout_ms` (-1: waits for ever); nothing is
// lost.
absl::StatusOr<std::string> ReadLine(int fd, int timeout_ms = -1);

}  // namespace weft::bench
