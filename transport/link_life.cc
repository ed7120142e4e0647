#include "transport/link_life.h"

namespace weft {

absl::Status LinkLife::CheckUp() const {
  if (state_ == State::kUp) return absl::OkStatus();
  if (state_ == State::kDown) return absl::UnavailableError("the link is down");
  return absl::FailedPreconditionError("the link is not up yet");
}

bool LinkLife::Fail(const absl::Status& why) {
  if (state_ == State::kDown) return false;
  state_ = State::kDown;
  why_down_ = why;
  return down_pending_ = true;
}

}  // namespace weft
