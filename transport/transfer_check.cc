#include "transport/transfer_check.h"

#include "core/strings.h"

namespace weft {

absl::Status WrongTransfer(const Transfer& transfer) {
  if (transfer.local == nullptr) return absl::InvalidArgumentError("a transfer without a region");
  const RemoteSpan& remote = transfer.remote;
  const size_t bytes = transfer.local->memory().size();
  if (transfer.local_offset > bytes || remote.length > bytes - transfer.local_offset) {
    return absl::InvalidArgumentError(StrCat("the local range [", transfer.local_offset, ", +",
                                             remote.length, ") exceeds its region of ", bytes,
                                             " bytes"));
  }
  return absl::InvalidArgumentError(StrCat("the remote range [", remote.offset, ", +",
                                           remote.length, ") is empty or ends beyond 2^64"));
}

absl::Status RegionOfAnother() {
  return absl::InvalidArgumentError("the local region was registered for another path or engine");
}

}  // namespace weft
