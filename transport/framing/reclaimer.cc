#include "transport/framing/reclaimer.h"

#include <utility>

namespace weft {

Reclaimer::Reclaimer(Host* host) : host_(host) {
  for (Fence& fence : fences_) fence.owner = this;
}

// A fence goes with what the turn sends.
void Reclaimer::Add(Operation* op) {
  waiting_.push_back(op);
  if (host_->HasFence()) {
    host_->AdvanceSoon();
  } else {
    AdvanceProbes();
  }
}

void Reclaimer::Advance() {
  if (host_->HasFence()) {
    SendFence();
  } else {
    AdvanceProbes();
  }
}

void Reclaimer::SendFence() {
  for (Fence& fence : fences_) {
    if (waiting_.empty()) return;
    if (!fence.fenced.empty()) continue;
    fence.fenced.swap(waiting_);
    if (!host_->SendFenceForReclaimer(&fence).ok()) fence.fenced.swap(waiting_);
    return;
  }
}

// Who is told may add more, and send a fence for it at once: another one, for this one's list is
// not empty before all are told.
void Reclaimer::Fence::OnComplete(const absl::Status&) {
  Tell(fenced);
  if (!owner->waiting_.empty()) owner->host_->AdvanceSoon();
}

void Reclaimer::AdvanceProbes() {
  if (phase_ == Phase::kIdle && !waiting_.empty()) {
    fenced_.swap(waiting_);
    phase_ = Phase::kAskFirst;
  }
  if (phase_ != Phase::kAskFirst && phase_ != Phase::kAskSecond) return;
  if (!host_->AskForReclaimer(this).ok()) return;
  phase_ = phase_ == Phase::kAskFirst ? Phase::kFirst : Phase::kSecond;
}

void Reclaimer::OnComplete(const absl::Status& status) {
  if (!status.ok()) return;  // the connection is ending: End() follows
  if (phase_ == Phase::kFirst) {
    phase_ = Phase::kAskSecond;
  } else {
    Tell(fenced_);  // still in kSecond: what is added meanwhile waits
    phase_ = Phase::kIdle;
  }
  AdvanceProbes();
}

void Reclaimer::End() {
  phase_ = Phase::kIdle;
  Tell(fenced_);
  for (Fence& fence : fences_) Tell(fence.fenced);
  Tell(waiting_);
}

size_t Reclaimer::pinned() const {
  size_t count = waiting_.size() + fenced_.size();
  for (const Fence& fence : fences_) count += fence.fenced.size();
  return count;
}

// Who is told may add more: to waiting_, which only End() tells, and then as well. Or it may end
// the connection: End() tells those whose turn has not come.
void Reclaimer::Tell(std::vector<Operation*>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) {
    if (Operation* const op = std::exchange(ops[i], nullptr)) op->OnComplete(absl::OkStatus());
  }
  ops.clear();
}

}  // namespace weft
