#include "examples/verify/history/key_search.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/strings.h"

namespace verify {
namespace {

// Operations that are shown of the end of the longest order, and of those that do not fit.
constexpr size_t kShown = 8;

Value Written(const Operation& operation) {
  return operation.kind == Kind::kDelete ? kAbsent : operation.value;
}

std::string Holds(Value state) {
  return state == kAbsent ? "there is no record" : weft::StrCat("the record holds ", state);
}

}  // namespace

KeySearch::KeySearch(const History& history) {
  for (const Operation& operation : history) {
    if (operation.returned()) operations_.push_back(operation);
  }
  completed_ = static_cast<Index>(operations_.size());
  for (const Operation& operation : history) {
    if (!operation.returned() && operation.writes()) operations_.push_back(operation);
  }
  for (const Operation& operation : operations_) {
    operation.writes() ? ++writes_left_[Written(operation)] : ++gets_left_[operation.value];
  }
  is_placed_.resize(operations_.size());
  left_ = completed_;
  LinkEvents();
}

void KeySearch::LinkEvents() {
  std::vector<Index> events(2 * completed_);
  std::iota(events.begin(), events.end(), Index{0});
  const auto time = [this](Index event) {
    const Operation& operation = operations_[event / 2];
    return IsReturn(event) ? operation.returned_ns : operation.invoked_ns;
  };
  // At the same time, invocations come first: those operations overlap.
  std::sort(events.begin(), events.end(), [&](Index a, Index b) {
    if (time(a) != time(b)) return time(a) < time(b);
    return IsReturn(a) != IsReturn(b) ? IsReturn(b) : a < b;
  });
  next_.assign(2 * completed_ + 1, kNoIndex);
  previous_.assign(2 * completed_ + 1, kNoIndex);
  Index last = Head();
  for (const Index event : events) {
    next_[last] = event;
    previous_[event] = last;
    last = event;
  }
}

void KeySearch::TakeOut(Index event) {
  next_[previous_[event]] = next_[event];
  if (next_[event] != kNoIndex) previous_[next_[event]] = previous_[event];
}

// The last one taken out is the first to be put back: its neighbours are those it had.
void KeySearch::PutBack(Index event) {
  next_[previous_[event]] = event;
  if (next_[event] != kNoIndex) previous_[next_[event]] = event;
}

Value KeySearch::StateAfter(Index operation) const {
  const Operation& it = operations_[operation];
  return it.writes() ? Written(it) : state_;
}

bool KeySearch::MayComeNext(Index operation) const {
  const Operation& it = operations_[operation];
  if (it.before == Before::kThere && state_ == kAbsent) return false;
  if (it.before == Before::kAbsent && state_ != kAbsent) return false;
  const auto gets = gets_left_.find(state_);
  if (gets == gets_left_.end() || gets->second == 0) return true;
  const auto writes = writes_left_.find(state_);
  const bool again = writes != writes_left_.end() && writes->second > 0;
  return again || Written(it) == state_;
}

void KeySearch::Place(Index operation) {
  const Operation& it = operations_[operation];
  if (operation < completed_) {
    TakeOut(CallOf(operation));
    TakeOut(ReturnOf(operation));
    --left_;
  }
  is_placed_[operation] = true;
  trail_.push_back(operation);
  --(it.writes() ? writes_left_[Written(it)] : gets_left_[it.value]);
  state_ = StateAfter(operation);
}

// All that fit: they change nothing for the others.
void KeySearch::PlaceGets() {
  Index before = Head();
  for (Index at = next_[before]; at != kNoIndex && !IsReturn(at); at = next_[before]) {
    const Operation& operation = operations_[at / 2];
    if (!operation.writes() && operation.value == state_) {
      Place(at / 2);
    } else {
      before = at;
    }
  }
}

KeySearch::Index KeySearch::NextChoice(Index after) const {
  if (after == kNoIndex || after < completed_) {
    Index at = next_[after == kNoIndex ? Head() : CallOf(after)];
    for (; at != kNoIndex && !IsReturn(at); at = next_[at]) {
      if (operations_[at / 2].writes() && MayComeNext(at / 2)) return at / 2;
    }
    return NextPending(completed_);
  }
  return NextPending(after + 1);
}

// What never returned is tried last: mostly it never happened.
KeySearch::Index KeySearch::NextPending(Index from) const {
  if (from >= operations_.size()) return kNoIndex;
  Index at = next_[Head()];
  while (at != kNoIndex && !IsReturn(at)) at = next_[at];
  if (at == kNoIndex) return kNoIndex;
  const uint64_t limit_ns = operations_[at / 2].returned_ns;
  for (Index pending = from; pending < operations_.size(); ++pending) {
    if (operations_[pending].invoked_ns > limit_ns) return kNoIndex;
    if (!is_placed_[pending] && MayComeNext(pending)) return pending;
  }
  return kNoIndex;
}

// Bits, without the zeros at the end: first those of what never returned, then from the first that
// is missing to the last that is placed.
KeySearch::Configuration KeySearch::Now() const {
  const Index first = next_[Head()] == kNoIndex ? completed_ : next_[Head()] / 2;
  Configuration now = {state_, first};
  const auto add = [&](Index from, Index until, Index ones) {
    for (Index operation = from; operation < until && ones > 0; ++operation) {
      const Index bit = (operation - from) % 64;
      if (bit == 0) now.push_back(0);
      now.back() |= uint64_t{is_placed_[operation]} << bit;
      ones -= is_placed_[operation];
    }
  };
  const auto total = static_cast<Index>(operations_.size());
  add(completed_, total, total);  // as many words each time
  add(first, completed_, completed_ - left_ - first);
  return now;
}

// False: it leads to where the search has been.
bool KeySearch::Choose(Index operation) {
  choices_.push_back({operation, state_, trail_.size()});
  Place(operation);
  PlaceGets();
  return configurations_.insert(Now()).second;
}

// Undoes the last choice, and what followed from it; returns it.
KeySearch::Index KeySearch::GoBack() {
  const Choice choice = choices_.back();
  choices_.pop_back();
  while (trail_.size() > choice.placed_before) {
    const Index operation = trail_.back();
    trail_.pop_back();
    const Operation& it = operations_[operation];
    ++(it.writes() ? writes_left_[Written(it)] : gets_left_[it.value]);
    is_placed_[operation] = false;
    if (operation >= completed_) continue;
    PutBack(ReturnOf(operation));
    PutBack(CallOf(operation));
    ++left_;
  }
  state_ = choice.state_before;
  return choice.operation;
}

KeySearch::Result KeySearch::Run(uint64_t max_configurations) {
  PlaceGets();
  Index tried = kNoIndex;
  while (left_ > 0) {
    const Index choice = NextChoice(tried);
    if (choice != kNoIndex) {
      tried = Choose(choice) ? kNoIndex : GoBack();
    } else {
      RememberBest();
      if (choices_.empty()) return Result::kNone;
      tried = GoBack();
    }
    if (configurations_.size() > max_configurations) return Result::kGaveUp;
  }
  return Result::kFound;
}

void KeySearch::RememberBest() {
  if (!best_.empty() && trail_.size() <= best_.size()) return;
  best_ = trail_;
  best_state_ = state_;
}

std::string KeySearch::WhyNot(Index operation, Value state) const {
  const Operation& it = operations_[operation];
  if (!it.writes()) {
    const bool written = std::any_of(operations_.begin(), operations_.end(), [&](const auto& o) {
      return o.writes() && Written(o) == it.value;
    });
    if (!written && it.value != kAbsent) return "nobody wrote that";
    return Holds(state);
  }
  if (it.before == Before::kThere && state == kAbsent) return "there is no record";
  if (it.before == Before::kAbsent && state != kAbsent) return "there is a record";
  return "all that could follow fails";
}

// Those that have yet to see what the record holds: it must not be overwritten before.
std::string KeySearch::StillToSee(const std::vector<bool>& placed, uint64_t start_ns) const {
  std::string text;
  size_t shown = 0;
  for (Index operation = 0; operation < completed_ && shown < kShown; ++operation) {
    const Operation& it = operations_[operation];
    if (placed[operation] || it.writes() || it.value != best_state_) continue;
    text += weft::StrCat("    ", Describe(it, start_ns), "\n");
    ++shown;
  }
  return text.empty() ? "" : "  these, which come later, have yet to see it:\n" + text;
}

std::string KeySearch::Explain() const {
  const uint64_t start_ns = operations_.empty() ? 0 : operations_.front().invoked_ns;
  std::vector<bool> placed(operations_.size());
  for (const Index operation : best_) placed[operation] = true;
  std::string text = weft::StrCat("the longest order that fits has ", best_.size(), " of ",
                                  operations_.size(), " operations; it ends:\n");
  const size_t shown = std::min(best_.size(), kShown);
  for (size_t i = best_.size() - shown; i < best_.size(); ++i) {
    text += weft::StrCat("    ", Describe(operations_[best_[i]], start_ns), "\n");
  }
  text += weft::StrCat("  then ", Holds(best_state_), ", and none of these can be next:\n");
  // Those that were invoked before the first return of what is missing.
  uint64_t limit_ns = kNeverReturned;
  for (Index operation = 0; operation < completed_; ++operation) {
    if (!placed[operation]) limit_ns = std::min(limit_ns, operations_[operation].returned_ns);
  }
  for (Index operation = 0; operation < operations_.size(); ++operation) {
    if (placed[operation] || operations_[operation].invoked_ns > limit_ns) continue;
    text += weft::StrCat("    ", Describe(operations_[operation], start_ns), "   <- ",
                         WhyNot(operation, best_state_), "\n");
  }
  return text + StillToSee(placed, start_ns);
}

}  // namespace verify
