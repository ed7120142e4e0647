// Reads an open file as a whole, and never more of it than its reader has room for.
//
// Threads: any; it blocks as read(2) does. Errors: those of read(2); `action` begins their text, as
//   in "read /etc/kv.policy".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft {

// From where `file` stands to its end, but at most `most_bytes`: who asks for one byte more than is
// allowed sees that there is more.
absl::StatusOr<std::string> ReadFile(int file, size_t most_bytes, std::string_view action);

}  // namespace weft
