// What a weft.Bulk field says about a payload: length, window and checksum. The same at both ends.
//
// Threads: pure functions.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "core/bytes.h"
#include "weft/memory.pb.h"

namespace weft {

struct BulkOptions {
  // A CRC32C over the payload, made by its sender and checked by its receiver, against whatever the
  // links do not see. Costs each side 20 ns/KiB (docs/performance_log.md). Over ofi_tcp there is
  // one whatever this says, for nothing else shows there that a payload has come whole: of a client
  // whose channel may use that path (it is named), and of a server on a connection over it, which
  // fetches none without.
  bool crc32c = true;
};

// Fills `field` in for `payload`, which travels through window `window`; 0: it is empty.
void DescribePayload(ByteSpan payload, uint32_t window, const BulkOptions& options, Bulk* field);

// DATA_LOSS unless `payload`, as it was received, has the length and checksum that `field` says.
absl::Status VerifyPayload(ByteSpan payload, const Bulk& field);

}  // namespace weft
