// CRC32C (Castagnoli): the end-to-end check of bulk payloads, at the speed of memory.
//
// Finds what the links' own checks miss: a wrong length, a stale buffer, a flipped bit between two
// machines' memories. It is no protection against somebody who changes bytes on purpose.
//
//   uint32_t whole = Crc32c(bytes);
//   uint32_t same = Crc32c(bytes.subspan(n), Crc32c(bytes.first(n)));
//
// Threads: a pure function. Errors: none.
#pragma once

#include <cstdint>

#include "core/bytes.h"

namespace weft {

// The CRC32C of `bytes`, or of what has the CRC32C `before` followed by `bytes`. Any length; that
// of no bytes is 0.
uint32_t Crc32c(ByteSpan bytes, uint32_t before = 0);

}  // namespace weft
