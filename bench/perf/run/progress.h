// How far a run is, on stderr: one line that is rewritten on a terminal; elsewhere a line for every
// tenth of the run.
//
// Threads: one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::bench {

class Progress {
 public:
  // `expected_seconds` of the whole.
  explicit Progress(double expected_seconds);
  ~Progress();

  // So much of the whole (0..1) is done; `what` is about to happen.
  void Say(double done, const std::string& what);

 private:
  double SecondsLeft(double done) const;

  const bool on_terminal_;
  const double expected_seconds_;
  const uint64_t start_ns_;
  int tenths_said_ = -1;
};

// "9 min", "45 s".
std::string DurationText(double seconds);

}  // namespace weft::bench
