// Reads a file as a whole, and never more of it than its reader has room for.
//
// Threads: any; they block as open(2) and read(2) do. What is in memory meanwhile is as large as
//   the bound, however small the file is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace weft {

// From where `file` stands to its end, but at most `most_bytes`: who asks for one byte more than is
// allowed sees that there is more. Errors: those of read(2); `action` begins their text, as in
// "read /etc/kv.policy".
absl::StatusOr<std::string> ReadFile(int file, size_t most_bytes, std::string_view action);

// A file that people write, whose name somebody has given. What is no regular file is refused: a
// pipe would be waited for. Errors call it `name`, as in "policy file /etc/kv.policy": NOT_FOUND,
// PERMISSION_DENIED, ... where it cannot be read; INVALID_ARGUMENT for what is no regular file, or
// has more than `most_bytes`.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, size_t most_bytes,
                                            std::string_view name);

}  // namespace weft
