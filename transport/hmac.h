// HMAC-SHA-256 (RFC 2104).
//
// Threads: any. Errors: it fails for want of memory only, and ends the process then: nothing safe
//   can follow.
#pragma once

#include <cstddef>

#include "core/bytes.h"
#include "core/secret.h"

namespace weft {

inline constexpr size_t kSha256Bytes = 32;

// Wiped when it goes, for it may be a key itself. REQUIRES: key.size() <= INT_MAX.
SecretBytes<kSha256Bytes> HmacSha256(ByteSpan key, ByteSpan data);

}  // namespace weft
