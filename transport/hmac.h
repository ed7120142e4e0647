// HMAC-SHA-256 (RFC 2104).
//
// Threads: any. Errors: it fails for want of memory only, and ends the process then: nothing safe
//   can follow.
#pragma once

#include <cstddef>
#include <string_view>

#include "core/bytes.h"
#include "core/secret.h"

namespace weft {

struct Nonce128;  // transport/link.h

inline constexpr size_t kSha256Bytes = 32;

// Wiped when it goes, for it may be a key itself. REQUIRES: key.size() <= INT_MAX.
SecretBytes<kSha256Bytes> HmacSha256(ByteSpan key, ByteSpan data);

// Half of that, as a code for a text: without the key nobody finds two texts with the same one.
Nonce128 HmacNonce(ByteSpan key, std::string_view text);

}  // namespace weft
