// What must be right of a Transfer, whatever the path: it has a region, its local range lies in
// there, and its remote range is neither empty nor beyond what 64 bits can say. What else a path
// wants of it (that the region is its own) the path checks itself.
//
// Threads: any. Errors: INVALID_ARGUMENT names the range.
#pragma once

#include "absl/status/status.h"
#include "transport/operation.h"
#include "transport/region.h"

namespace weft {

// What is wrong with it. REQUIRES: something is.
absl::Status WrongTransfer(const Transfer& transfer);

inline absl::Status CheckTransfer(const Transfer& transfer) {
  const RemoteSpan& remote = transfer.remote;
  if (transfer.local == nullptr) [[unlikely]]
    return WrongTransfer(transfer);
  const size_t bytes = transfer.local->memory().size();
  if (transfer.local_offset > bytes || remote.length > bytes - transfer.local_offset ||
      remote.length == 0 || remote.offset + remote.length < remote.offset) [[unlikely]] {
    return WrongTransfer(transfer);
  }
  return absl::OkStatus();
}

// Of a path whose region it is not.
absl::Status RegionOfAnother();

}  // namespace weft
