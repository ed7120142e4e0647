// Paths as they travel: relative to the shared folder, a '/' between names. They name what is below
// that folder and nothing else: no "..", no ".", no empty name, no leading or closing '/', no zero
// byte. The empty path is the shared folder itself.
//
// Both sides check what the other one says: a server paths of requests, a client names in lists.
//
// Threads: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace fileshare {

inline constexpr size_t kMaxNameBytes = 255;   // Linux's NAME_MAX
inline constexpr size_t kMaxPathBytes = 4095;  // Linux's PATH_MAX, without the zero byte
inline constexpr size_t kMaxDepth = 128;       // names; bounds what a path makes a server open

// The name of a file or folder in its folder.
bool IsName(std::string_view name);

// The names in the path. INVALID_ARGUMENT says what is wrong with it.
absl::StatusOr<std::vector<std::string>> SplitPath(std::string_view path);

// "" + "a" = "a"; "a/b" + "c" = "a/b/c".
std::string JoinPath(std::string_view folder, std::string_view name);

}  // namespace fileshare
