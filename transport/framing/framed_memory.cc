// Writing behind which a message is sent, and reclaiming memory, of FramedConnection.

#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/status.h"
#include "core/strings.h"
#include "transport/framing/framed_steps.h"

namespace weft {

absl::StatusOr<Posted> FramedConnection::WriteThenSend(absl::Span<const Transfer> transfers,
                                                       ByteSpan message, Operation* op) {
  WEFT_DCHECK(!reserved_);
  if (state_ == State::kOpen && (message.empty() || message.size() > eager_bytes_)) {
    return absl::InvalidArgumentError(StrCat("a message of ", message.size(), " bytes; 1 to ",
                                             eager_bytes_, " (eager_bytes) are possible"));
  }
  // The message's place is taken first: it cannot be refused once the batch is on its way.
  if (!MakeRoom(FrameBytes(message.size()))) return Refuse().status();
  absl::StatusOr<Posted> posted = Post(TransferKind::kWrite, transfers, op);
  if (!posted.ok()) {
    if (batch_.frames() == 0) CancelOpenSlot();
    return posted;
  }
  std::byte* const payload = batch_.Append(message.size(), FrameKind::kMessage);
  std::memcpy(payload, message.data(), message.size());
  ClearPadding(payload, message.size());
  ++committed_;
  SendOpenSlot();
  return posted;
}

bool FramedConnection::Reclaim(std::unique_ptr<Region> region, Operation* op) {
  if (link_ == nullptr || link_->Reclaim(std::move(region))) return true;
  reclaimer_.Add(op);
  return false;
}

// A peer of a release that answers no probes is trusted where there is no fence: without, its large
// messages would come to a stand.
bool FramedConnection::ReclaimLarge(std::unique_ptr<Region> region, Operation* op) {
  if (!peer_answers_ && !HasFence()) return true;
  return Reclaim(std::move(region), op);
}

bool FramedConnection::HasFence() const { return link_ != nullptr && link_->has_fence(); }

void FramedConnection::AdvanceSoon() {
  due_ = true;
  if (state_ == State::kOpen) MarkDirty();
}

// What the turn has to send, or a batch of nothing.
absl::Status FramedConnection::SendFenceForReclaimer(Operation* passed) {
  const bool has_slot = slot_.data != nullptr;
  if (reserved_ || state_ != State::kOpen ||
      (!has_slot && !(window_.MaySendFrames() && TakeSlot(0)))) {
    return absl::UnavailableError("not now");
  }
  const SendSlot slot = slot_;
  const uint32_t bytes = FinishBatch();
  link_->SendFence(slot, bytes, passed).IgnoreError();
  return absl::OkStatus();
}

// A reservation that is open keeps the batch: FlushTurn() comes back to it.
absl::Status FramedConnection::AskForReclaimer(Operation* probe) {
  due_ = true;  // until there is room for it
  if (reserved_ || state_ != State::kOpen) {
    if (state_ == State::kOpen) MarkDirty();
    return absl::UnavailableError("not now");
  }
  const bool wanted_writable = wants_writable_;
  absl::Status asked = Probe(probe);
  wants_writable_ = wanted_writable;  // nobody who was refused waits for OnWritable()
  return asked;
}

}  // namespace weft
