#include "examples/verify/witness/ledger.h"

#include <algorithm>
#include <utility>

#include "weft/status.h"

namespace kv::witness {

Ending EndingOf(const absl::Status& status, bool reply_right) {
  if (status.ok()) return reply_right ? Ending::kOk : Ending::kWrong;
  if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status)) return Ending::kWrong;
  switch (weft::DeliveryOf(status)) {
    case weft::Delivery::kNotSent:
      return Ending::kNotSent;
    case weft::Delivery::kMayHaveRun:
      return Ending::kMayHaveRun;
    case weft::Delivery::kUnknown:
      break;
  }
  // Unless it is a deadline, the caller does not learn what to do next.
  return absl::IsDeadlineExceeded(status) ? Ending::kMayHaveRun : Ending::kWrong;
}

uint64_t Ledger::Start(uint64_t deadline_ns) {
  std::lock_guard lock(mutex_);
  calls_.push_back({deadline_ns, Ending::kNone});
  return calls_.size() - 1;
}

void Ledger::End(uint64_t number, const absl::Status& status, bool reply_right, uint64_t now_ns) {
  std::lock_guard lock(mutex_);
  Call& call = calls_[number];
  if (call.ending != Ending::kNone) {
    ++ended_twice_;
    return;
  }
  ++ended_;
  call.ending = witness::EndingOf(status, reply_right);
  if (now_ns > call.deadline_ns) latest_ns_ = std::max(latest_ns_, now_ns - call.deadline_ns);
  if (!status.ok() && tally_.first_error.empty()) tally_.first_error = status.ToString();
  tally_.deadlines += absl::IsDeadlineExceeded(status);
  tally_.ok += call.ending == Ending::kOk;
  tally_.not_sent += call.ending == Ending::kNotSent;
  tally_.may_have_run += call.ending == Ending::kMayHaveRun;
  if (call.ending == Ending::kWrong) {
    ++tally_.wrong;
    if (first_wrong_.empty()) {
      first_wrong_ = status.ok() ? "OK, and the reply was wrong" : status.ToString();
    }
  }
}

Ending Ledger::EndingOf(uint64_t number) const {
  std::lock_guard lock(mutex_);
  return calls_[number].ending;
}

uint64_t Ledger::started() const {
  std::lock_guard lock(mutex_);
  return calls_.size();
}

uint64_t Ledger::under_way() const {
  std::lock_guard lock(mutex_);
  return calls_.size() - ended_;
}

uint64_t Ledger::ended_twice() const {
  std::lock_guard lock(mutex_);
  return ended_twice_;
}

uint64_t Ledger::latest_ns() const {
  std::lock_guard lock(mutex_);
  return latest_ns_;
}

std::string Ledger::first_wrong() const {
  std::lock_guard lock(mutex_);
  return first_wrong_;
}

Tally Ledger::TakeTally() {
  std::lock_guard lock(mutex_);
  return std::exchange(tally_, Tally());
}

}  // namespace kv::witness
