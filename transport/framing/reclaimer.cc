#include "transport/framing/reclaimer.h"

#include <utility>

namespace weft {

void Reclaimer::Add(Operation* op) {
  waiting_.push_back(op);
  Advance();
}

void Reclaimer::Advance() {
  if (phase_ == Phase::kIdle && !waiting_.empty()) {
    fenced_.swap(waiting_);
    phase_ = Phase::kAskFirst;
  }
  if (!wants_probe() || !host_->AskForReclaimer(this).ok()) return;
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
  Advance();
}

void Reclaimer::End() {
  phase_ = Phase::kIdle;
  Tell(fenced_);
  Tell(waiting_);
}

// Who is told may add more: not to the list that is being told, but for the end, where it is told
// as well.
void Reclaimer::Tell(std::vector<Operation*>& ops) {
  for (size_t i = 0; i < ops.size(); ++i) ops[i]->OnComplete(absl::OkStatus());
  ops.clear();
}

}  // namespace weft
