// HMAC-SHA-256 (RFC 2104).
//
// Threads: any. Errors: it fails for want of memory only, and ends the process then: nothing safe
//   can follow.
#pragma once

#include <array>
#include <cstddef>

#include "core/bytes.h"

namespace weft {

inline constexpr size_t kSha256Bytes = 32;

// REQUIRES: key.size() <= INT_MAX.
std::array<std::byte, kSha256Bytes> HmacSha256(ByteSpan key, ByteSpan data);

}  // namespace weft
