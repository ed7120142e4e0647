// Which values travel as bulk.
//
// Threads:  a constant.
#pragma once

#include <cstddef>

namespace kv {

// From here on a transfer of its own, of some microseconds, costs less than serializing and parsing
// the value, and than the room that it would take among small calls.
inline constexpr size_t kMinBulkBytes = 4096;

}  // namespace kv
