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

void Reclaimer::Fence::OnComplete(const absl::Status&) {
  // Who is told may add more, which another fence is for: this one is taken until all are told.
  std::vector<Operation*> told;
  told.swap(fenced);
  Tell(told);
  told.swap(fenced);  // its room
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
    phase_ = Phase::kIdle;
    Tell(fenced_);
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

// Who is told may add more: not to the list that is being told, but for the end, where it is told
// as well.
void Reclaimer::Tell(std::vector<Operation*>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) ops[i]->OnComplete(absl::OkStatus());
  ops.clear();
}

}  // namespace weft
