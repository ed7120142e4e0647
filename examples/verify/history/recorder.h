// Writes down a history while it happens.
//
//   Recorder recorder(clock, /*lanes=*/16);
//   lane.Invoke(Kind::kGet, key);  ...  lane.ReturnGet(value);
//   Verdict verdict = CheckHistory(recorder.Merge());
//
// Each lane has one operation under way at a time and belongs to one thread at a time: recording
// takes no lock, and the same clock stamps all lanes.
//
// Threads:   each lane its own; Merge() when none is recorded to.
// Lifetime:  the clock outlives the recorder; it must be one for all lanes (Clock::Real() is one
//            for all processes of a host).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>

#include "core/check.h"
#include "core/clock.h"
#include "examples/verify/history/operation.h"

namespace verify {

class Lane {
 public:
  Lane(const weft::Clock& clock, uint32_t number) : clock_(clock), number_(number) {}

  // Just before it is sent. REQUIRES: nothing is under way in this lane.
  void Invoke(Kind kind, uint64_t key, Value value = kAbsent) {
    WEFT_CHECK(!busy_);
    busy_ = true;
    operations_.push_back(
        {kind, key, value, Before::kNotSaid, clock_.NowNs(), kNeverReturned, number_});
  }

  // Just after its result is known.
  void ReturnGet(Value value) {
    operations_.back().value = value;
    Return();
  }
  void ReturnWrite(Before before) {
    operations_.back().before = before;
    Return();
  }
  // It failed; whether it took effect, now or later, nobody can say.
  void ReturnUnknown() { busy_ = false; }
  // It failed and surely has no effect.
  void ReturnNothing() {
    busy_ = false;
    operations_.pop_back();
  }

  const History& operations() const { return operations_; }

 private:
  void Return() {
    WEFT_CHECK(busy_);
    busy_ = false;
    operations_.back().returned_ns = clock_.NowNs();
  }

  const weft::Clock& clock_;
  const uint32_t number_;
  bool busy_ = false;
  History operations_;
};

class Recorder {
 public:
  Recorder(const weft::Clock& clock, uint32_t lanes) {
    for (uint32_t lane = 0; lane < lanes; ++lane) lanes_.emplace_back(clock, lane);
  }

  Lane& lane(uint32_t number) { return lanes_[number]; }

  // What all lanes saw, by time of invocation.
  History Merge() const {
    History all;
    for (const Lane& lane : lanes_) {
      all.insert(all.end(), lane.operations().begin(), lane.operations().end());
    }
    std::stable_sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) {
      return a.invoked_ns < b.invoked_ns;
    });
    return all;
  }

 private:
  std::deque<Lane> lanes_;  // stay where they are
};

}  // namespace verify
