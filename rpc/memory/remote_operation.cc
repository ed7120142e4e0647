#include "rpc/memory/remote_operation.h"

#include <utility>

#include "rpc/memory/remote_memory_core.h"

namespace weft {

void RemoteOperation::OnComplete(const absl::Status& status) {
  core->OnOperationComplete(*this, status);
}

void RemoteOperation::OnComplete(const absl::Status& status, uint64_t found) {
  before = found;
  core->OnOperationComplete(*this, status);
}

void RemoteOperation::KeepPieces() {
  if (!moves() || pieces.data() == kept_.data()) return;  // of an atomic they are an earlier one's
  kept_.assign(pieces.begin(), pieces.end());
  pieces = kept_;
}

void RemoteOperation::CallBack(absl::Status status, bool recycle) {
  const uint64_t found = before;
  Function<void(absl::Status)> end = std::move(done);
  Function<void(absl::StatusOr<uint64_t>)> end_with_number = std::move(done_with_number);
  if (recycle) core->Recycle(this);
  if (end) return end(std::move(status));
  if (status.ok()) return end_with_number(found);
  end_with_number(std::move(status));
}

void RemoteOperation::Finish(absl::Status status) {
  if (core->Defer(*this, &status)) return;
  CallBack(std::move(status), /*recycle=*/true);
}

}  // namespace weft
